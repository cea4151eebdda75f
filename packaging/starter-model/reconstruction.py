"""How far a decoded picture is from the true one, as the VAE's training sees it and as people count it."""

from __future__ import annotations

import torch
from diffusers import AutoencoderKL
from torch import Tensor
from torch.nn import functional

POOLS = (4, 8)  # pixels


def reconstruction_loss(decoded: Tensor, true: Tensor, edge_weight: float) -> Tensor:
    """Absolute and squared error, error of the edges, and error of 4- and 8-pixel averages.

    The averages have a weight of their own because group norm loses colours without it.
    """
    error = decoded - true
    edges = torch.stack([(decoded.diff(dim=axis) - true.diff(dim=axis)).abs().mean() for axis in (-1, -2)]).sum()
    averages = torch.stack([functional.avg_pool2d(error, size).abs().mean() for size in POOLS]).sum()
    return error.abs().mean() + error.pow(2).mean() + edge_weight * edges + averages


def add_noise(latents: Tensor, share: float, generator: torch.Generator) -> Tensor:
    """Latents with normal noise of `share` times their standard deviation, so that the decoder learns to bear it."""
    noise = torch.randn(latents.shape, generator=generator)
    return latents + share * latents.detach().std() * noise


@torch.inference_mode()
def mean_psnr(vae: AutoencoderKL, latents: Tensor, true: Tensor) -> float:
    """Mean peak signal-to-noise ratio in dB of decoded `latents` against pictures [B, 3, H, W] in -1..1."""
    decoded = torch.cat([vae.decode(part).sample for part in latents.split(8)]).clamp(-1, 1)
    squared = (decoded - true).pow(2).mean((1, 2, 3))
    return (10 * torch.log10(4 / squared)).mean().item()
