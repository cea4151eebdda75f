"""Previews: the clean picture that a step predicts, not the noisy latents, as a small RGB image.

A preview is a linear projection of the latents, one pixel for each of theirs, or the VAE's own decode where that costs
less than a tenth of a step.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

import torch

from engine.events import RgbImage
from engine.generation.samplers import EPSILON, FLOW
from engine.models.latent_rgb import LatentRgb
from engine.vae.vae import to_rgb

VAE_SHARE = 0.1  # of a step, at most, for a preview by the VAE


def predicted_clean(
    prediction: torch.Tensor, model_input: torch.Tensor, alpha: float, sigma: float, kind: str
) -> torch.Tensor:
    """The clean latents x0 that a prediction implies, in the shape of its input.

    For epsilon (Ho et al. 2020, eq. 15) and v-prediction (Salimans & Ho 2022, app. D) `alpha` is the cumulative
    product of alphas and `model_input` the variance-preserving sample, as `scale_model_input` returns it. For flow
    matching (Lipman et al. 2023) `sigma` in 0..1 is the share of noise.
    """
    if kind == FLOW:
        return model_input - sigma * prediction
    if kind == EPSILON:
        return (model_input - (1 - alpha) ** 0.5 * prediction) / alpha**0.5
    return alpha**0.5 * model_input - (1 - alpha) ** 0.5 * prediction


def noise_level(scheduler: Any, position: int, timestep: torch.Tensor) -> tuple[float, float]:
    """(alpha, sigma) at a position of a scheduler's timesteps: of its sigmas where it has them, else of its table."""
    sigmas = getattr(scheduler, "sigmas", None)
    if sigmas is not None:
        sigma = float(sigmas[position])
        return 1 / (1 + sigma**2), sigma
    alpha = float(scheduler.alphas_cumprod[int(timestep)])
    return alpha, (1 - alpha) ** 0.5


def project(latents: torch.Tensor, factors: LatentRgb) -> RgbImage:
    """Latents [1, C, h, w] to an 8-bit image of h × w pixels by linear factors."""
    matrix = torch.tensor(factors.factors, dtype=torch.float32)
    rgb = latents[0].float().cpu().permute(1, 2, 0) @ matrix + torch.tensor(factors.bias)
    return image_of(to_rgb(rgb.permute(2, 0, 1)[None]))


def image_of(rgb: torch.Tensor) -> RgbImage:
    """uint8 [H, W, 3] on the CPU as an `RgbImage`."""
    return RgbImage(width=rgb.shape[1], height=rgb.shape[0], pixels=rgb.numpy().tobytes())


class PreviewMaker:
    """Makes previews no more often than `interval` seconds. Both ways of making one may be missing: then there is none.

    `decode` is the VAE's decode to pixels; `decode_seconds` what it is known to take, None while that isn't known.
    """

    def __init__(
        self,
        factors: LatentRgb | None,
        decode: Callable[[torch.Tensor], Awaitable[RgbImage]],
        decode_seconds: float | None,
        interval: float,
    ) -> None:
        self._factors = factors
        self._decode = decode
        self._decode_seconds = decode_seconds
        self._interval = interval
        self._last = float("-inf")

    async def make(self, latents: torch.Tensor, step_seconds: float) -> RgbImage | None:
        """The preview of these latents, or None where it is too soon."""
        if time.perf_counter() - self._last < self._interval:
            return None
        self._last = time.perf_counter()
        if self._decode_seconds is not None and self._decode_seconds < VAE_SHARE * step_seconds:
            return await self._decode(latents)
        return project(latents, self._factors) if self._factors is not None else None
