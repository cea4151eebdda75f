"""The loop, with a predictor that knows the picture: every preview and the result are that picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import NonFiniteLatents, OperationCancelled
from engine.events import RgbImage
from engine.generation.samplers import EPSILON, FLOW, V_PREDICTION, evaluations_per_step, make_scheduler, why_unusable
from engine.request import Sampler

if TYPE_CHECKING:
    import torch

    from engine.generation.denoise import StepReport

pytestmark = pytest.mark.usefixtures("torch_imported")

CONFIG: dict[str, Any] = {
    "_class_name": "DDIMScheduler",
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "clip_sample": False,
    "num_train_timesteps": 1000,
    "set_alpha_to_one": False,
    "steps_offset": 1,
}
CONFIGS: dict[str, dict[str, Any]] = {
    EPSILON: CONFIG | {"prediction_type": "epsilon"},
    V_PREDICTION: CONFIG | {"prediction_type": "v_prediction", "timestep_spacing": "trailing"},
    FLOW: {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 3.0},
}
USABLE = [(sampler, kind) for kind in CONFIGS for sampler in Sampler if why_unusable(sampler, kind) is None]
SHAPE = (1, 4, 8, 8)
IMAGE = RgbImage(width=1, height=1, pixels=b"abc")


class Previews:
    """Takes the place of the preview maker: keeps what it is asked to show."""

    def __init__(self, before: Callable[[int], Any] | None = None) -> None:
        self.seen: list[torch.Tensor] = []
        self._before = before

    async def make(self, latents: torch.Tensor, step_seconds: float) -> RgbImage | None:
        self.seen.append(latents)
        if self._before is not None:
            await self._before(len(self.seen))
        return IMAGE


class Run:
    """One run of the loop; `predict(latents, timestep, prompt)` is the test's."""

    def __init__(self, sampler: Sampler, kind: str, steps: int) -> None:
        from engine.generation.denoise import Schedule

        self.kind = kind
        self.scheduler: Any = make_scheduler(sampler, CONFIGS[kind], 0)
        self.scheduler.set_timesteps(steps)
        self.schedule = Schedule(self.scheduler, steps, evaluations_per_step(sampler), kind)
        self.reports: list[StepReport] = []
        self.token = CancellationToken()
        self.evaluations = 0

    async def denoise(self, predict: Any, previews: Any = None, guidance: float = 1.0, seed: int = 0) -> torch.Tensor:
        import torch

        from engine.generation.denoise import denoise
        from engine.generation.latents import initial_noise

        async def counted(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
            self.evaluations += 1
            answer: torch.Tensor = await predict(latents, timestep, prompt)
            return answer

        noise, generator = initial_noise(seed, *SHAPE[1:])
        prompt = torch.zeros(2 if guidance > 1 else 1, 3, 5)
        return await denoise(
            counted, self.schedule, noise, generator, prompt, guidance, self.token, self.reports.append, previews
        )

    def knowing(self, clean: torch.Tensor) -> Any:
        """A predictor that answers what the model was trained to answer, given the clean latents behind the noise."""
        import numpy as np
        import torch

        betas = np.linspace(CONFIG["beta_start"] ** 0.5, CONFIG["beta_end"] ** 0.5, 1000) ** 2
        alphas = np.cumprod(1 - betas)

        async def predict(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
            await asyncio.sleep(0)
            if self.kind == FLOW:
                sigma = float(timestep) / 1000
                return (latents - clean) / sigma
            # between two training steps the noise is interpolated by its logarithm
            log_sigma = np.interp(float(timestep), np.arange(1000), 0.5 * np.log((1 - alphas) / alphas))
            alpha = 1 / (1 + np.exp(2 * log_sigma))
            noise = (latents - alpha**0.5 * clean) / (1 - alpha) ** 0.5
            answer = noise if self.kind == EPSILON else alpha**0.5 * noise - (1 - alpha) ** 0.5 * clean
            noisy: torch.Tensor = answer.to(torch.float32)
            return noisy

        return predict


def picture() -> torch.Tensor:
    import torch

    return torch.randn(SHAPE, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("steps", [1, 2, 12])
@pytest.mark.parametrize(("sampler", "kind"), USABLE)
async def test_every_step_is_reported_and_shows_the_picture(sampler: Sampler, kind: str, steps: int) -> None:
    run, previews, clean = Run(sampler, kind, steps), Previews(), picture()
    latents = await run.denoise(run.knowing(clean), previews)
    assert [(report.step, report.steps) for report in run.reports] == [(n, steps) for n in range(1, steps + 1)]
    assert all(report.preview == IMAGE and report.seconds >= 0 for report in run.reports)
    assert run.evaluations == len(run.scheduler.timesteps) <= steps * evaluations_per_step(sampler) + 1
    worst = max((seen - clean).abs().max().item() for seen in previews.seen)
    assert worst < 0.05
    assert latents.shape == SHAPE
    # DDIM ends a little before the end of the noise, as Stable Diffusion's was trained; PNDM's warm-up isn't exact
    if steps > 1 and sampler is not Sampler.PNDM:
        assert (latents - clean).abs().max().item() < 0.15


@pytest.mark.parametrize("sampler", Sampler)
async def test_the_same_seed_makes_the_same_latents_and_another_makes_others(sampler: Sampler) -> None:
    import torch

    async def predict(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        return latents.tanh()

    first, again, other = [await Run(sampler, EPSILON, 4).denoise(predict, seed=seed) for seed in (1, 1, 2)]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


async def test_guidance_is_classifier_free() -> None:
    import torch

    run, given = Run(Sampler.DDIM, EPSILON, 3), []

    async def predict(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        given.append((latents, timestep, prompt))
        return torch.cat([latents[:1] * 0.1, latents[1:] * 0.3])

    async def by_hand(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        return latents * 0.1 + 5.0 * (latents * 0.3 - latents * 0.1)

    guided = await run.denoise(predict, guidance=5.0)
    assert torch.allclose(guided, await Run(Sampler.DDIM, EPSILON, 3).denoise(by_hand), atol=1e-5)
    for latents, timestep, prompt in given:
        assert latents.shape == (2, *SHAPE[1:])
        assert torch.equal(latents[0], latents[1])
        assert (timestep.shape, timestep.dtype) == ((), torch.float32)
        assert prompt.shape[0] == 2


async def test_a_preview_is_made_while_the_next_prediction_runs() -> None:
    previewing = asyncio.Event()
    predictions = 0

    async def before(number: int) -> None:
        previewing.set()

    async def predict(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        nonlocal predictions
        predictions += 1
        if predictions > 1:
            await asyncio.wait_for(previewing.wait(), 60)  # this step can't end before the last one's preview began
            previewing.clear()
        return latents * 0.1

    run = Run(Sampler.EULER, EPSILON, 4)
    await run.denoise(predict, Previews(before))
    assert [report.step for report in run.reports] == [1, 2, 3, 4]


async def test_without_previews_steps_are_still_reported() -> None:
    run = Run(Sampler.EULER, EPSILON, 3)
    await run.denoise(run.knowing(picture()))
    assert [(report.step, report.preview) for report in run.reports] == [(1, None), (2, None), (3, None)]


async def test_a_token_cancelled_beforehand_predicts_nothing() -> None:
    run = Run(Sampler.EULER, EPSILON, 3)
    run.token.cancel("too late")
    with pytest.raises(OperationCancelled, match="too late"):
        await run.denoise(run.knowing(picture()), Previews())
    assert (run.evaluations, run.reports) == (0, [])


@pytest.mark.parametrize("step", [1, 2, 3])
async def test_cancelling_inside_a_step_makes_no_further_prediction(step: int) -> None:
    run = Run(Sampler.EULER, EPSILON, 3)
    knowing = run.knowing(picture())

    async def predict(*inputs: Any) -> Any:
        answer = await knowing(*inputs)
        if run.evaluations == step:
            run.token.cancel("Enough.")
        return answer

    with pytest.raises(OperationCancelled, match="Enough"):
        await run.denoise(predict, Previews())
    assert run.evaluations == step


async def test_cancelling_at_the_last_report_still_cancels() -> None:
    run = Run(Sampler.EULER, EPSILON, 2)

    async def before(number: int) -> None:
        if number == 2:
            run.token.cancel("Enough.")

    with pytest.raises(OperationCancelled):
        await run.denoise(run.knowing(picture()), Previews(before))


@pytest.mark.parametrize("failing", ["predictor", "preview"])
async def test_what_fails_comes_out_once_both_have_ended(failing: str) -> None:
    ended: list[str] = []

    async def before(number: int) -> None:
        if failing == "preview":
            raise MemoryError
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ended.append("preview")

    async def predict(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        if run.evaluations == 2:
            if failing == "predictor":
                raise MemoryError
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ended.append("predictor")
        return latents

    run = Run(Sampler.EULER, EPSILON, 3)
    with pytest.raises(MemoryError):
        await run.denoise(predict, Previews(before))
    assert ended == ["predictor" if failing == "preview" else "preview"]
    assert run.evaluations == 2


async def test_latents_that_stop_being_numbers_name_the_step() -> None:
    run = Run(Sampler.DDIM, EPSILON, 5)

    async def predict(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        answer = latents.clone()
        if run.evaluations == 3:
            answer[0, 0, 0, :3] = float("nan")
        return answer

    with pytest.raises(NonFiniteLatents, match=r"^Step 3 of 5: 3 of 256 values are not finite numbers\.$"):
        await run.denoise(predict)
    assert [report.step for report in run.reports] == [1, 2]
