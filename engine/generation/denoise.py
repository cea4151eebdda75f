"""The denoising loop: prediction, guidance, scheduler step; each preview is made beside the next prediction."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from engine.cancellation import CancellationToken
from engine.events import RgbImage
from engine.generation.latents import check_finite
from engine.generation.preview import PreviewMaker, noise_level, predicted_clean

Predict = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], Awaitable[torch.Tensor]]


@dataclass(frozen=True)
class StepReport:
    """Step `step` of `steps` is done, after `seconds`; `preview` is None where it was throttled or turned off."""

    step: int
    steps: int
    seconds: float
    preview: RgbImage | None


@dataclass(frozen=True)
class Schedule:
    """A scheduler with its timesteps set. `evaluations` is how often a step runs the noise predictor."""

    scheduler: Any
    steps: int
    evaluations: int
    prediction: str


async def denoise(
    predict: Predict,
    schedule: Schedule,
    noise: torch.Tensor,
    generator: torch.Generator,
    prompt: torch.Tensor,
    guidance_scale: float,
    token: CancellationToken,
    report: Callable[[StepReport], None],
    previews: PreviewMaker | None,
) -> torch.Tensor:
    """From unit noise [1, C, h, w] to clean scaled latents of the same shape.

    `prompt` holds the embeddings [2, L, width] of negative prompt and prompt, or [1, L, width] without guidance.
    Classifier-free guidance as in Ho & Salimans 2022: negative + scale * (prompt - negative). Raises
    `OperationCancelled` between and inside steps, `NonFiniteLatents` naming the step.
    """
    scheduler = schedule.scheduler
    latents = noise.to(prompt.device) * getattr(scheduler, "init_noise_sigma", 1.0)
    options = {"generator": generator} if _takes_generator(scheduler) else {}
    # A sampler may run more evaluations than steps times its order (PNDM warms up with one).
    warm_up = max(0, len(scheduler.timesteps) - schedule.steps * schedule.evaluations)
    to_report: Callable[[], Awaitable[None]] = _nothing
    clean, started = latents, time.perf_counter()
    for position, timestep in enumerate(scheduler.timesteps):
        token.raise_if_cancelled()
        model_input = (
            scheduler.scale_model_input(latents, timestep) if hasattr(scheduler, "scale_model_input") else latents
        )
        batch = torch.cat([model_input] * prompt.shape[0])
        prediction = await _beside(predict(batch, timestep.float().cpu(), prompt), to_report())
        to_report = _nothing
        if prompt.shape[0] == 2:
            negative, positive = prediction.chunk(2)
            prediction = negative + guidance_scale * (positive - negative)
        done = position - warm_up
        if done < 0 or done % schedule.evaluations == 0:
            level = noise_level(scheduler, position, timestep)
            clean = predicted_clean(prediction, model_input, *level, schedule.prediction)
        latents = scheduler.step(prediction, timestep, latents, return_dict=False, **options)[0]
        step = done // schedule.evaluations + 1
        check_finite(latents, f"Step {max(step, 1)} of {schedule.steps}")
        last = position == len(scheduler.timesteps) - 1
        if done >= 0 and (done % schedule.evaluations == schedule.evaluations - 1 or last):
            seconds, started = time.perf_counter() - started, time.perf_counter()
            to_report = partial(_report, report, previews, clean, step, schedule.steps, seconds)
    await to_report()
    token.raise_if_cancelled()
    return latents


async def _report(
    report: Callable[[StepReport], None],
    previews: PreviewMaker | None,
    clean: torch.Tensor,
    step: int,
    steps: int,
    seconds: float,
) -> None:
    preview = await previews.make(clean, seconds) if previews is not None else None
    report(StepReport(step, steps, seconds, preview))


async def _nothing() -> None:
    return None


async def _beside(prediction: Awaitable[torch.Tensor], report: Awaitable[None]) -> torch.Tensor:
    """Await the prediction with the last step's report beside it; end only when both have, raise what either raised."""
    predicted, reported = await asyncio.gather(prediction, report, return_exceptions=True)
    for result in (predicted, reported):
        if isinstance(result, BaseException):
            raise result
    assert isinstance(predicted, torch.Tensor)
    return predicted


def _takes_generator(scheduler: Any) -> bool:
    return "generator" in scheduler.step.__code__.co_varnames[: scheduler.step.__code__.co_argcount]
