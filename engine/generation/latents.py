"""The latents that a run starts from, and the check that they stay numbers."""

from __future__ import annotations

import torch

from engine.errors import NonFiniteLatents


def initial_noise(seed: int, channels: int, height: int, width: int) -> tuple[torch.Tensor, torch.Generator]:
    """Unit noise, f32 [1, channels, height, width] in latent pixels, and the generator that drew it, for the sampler's
    further draws. Both on the CPU, so that a seed means the same picture on every device.
    """
    generator = torch.Generator("cpu").manual_seed(seed)
    noise = torch.randn((1, channels, height, width), generator=generator, dtype=torch.float32)
    return noise, generator


def check_finite(values: torch.Tensor, where: str) -> None:
    """Raises `NonFiniteLatents`, saying where and how many values of how many are NaN or infinite."""
    if not torch.isfinite(values).all():
        bad = int((~torch.isfinite(values)).sum())
        raise NonFiniteLatents(f"{where}: {bad:,} of {values.numel():,} values are not finite numbers.")
