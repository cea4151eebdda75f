"""The VAE with its two hosts: latents to pictures and back, with diffusers' tiling and slicing switches."""

from __future__ import annotations

from typing import Any

import torch

from engine.cancellation import CancellationToken
from engine.hosts.chain import Call
from engine.hosts.runner import Runner
from engine.plans.eager import EagerStream
from engine.plans.plan import EAGER
from engine.vae.strips import run_by_strips


class Vae:
    """AutoencoderKL (Kingma & Welling 2014; Rombach et al. 2022). Pictures are in -1..1; latents are scaled to the unit
    variance that the noise predictor works with.

    `set_tiling` and `set_slicing` raise the structure version of both halves where they change something. A tiled
    decode runs eagerly: its loops over tiles are Python, which a compiled graph of one size doesn't hold.
    """

    def __init__(self, vae: Any, encoder: Runner, decoder: Runner, stream: EagerStream) -> None:
        self.encoder = encoder
        self.decoder = decoder
        self._vae = vae
        self._dtype: torch.dtype = next(vae.parameters()).dtype
        self.factor: int = 2 ** (len(vae.config.block_out_channels) - 1)
        self.channels: int = vae.config.latent_channels
        self._scale = float(vae.config.scaling_factor)
        self._shift = float(vae.config.shift_factor or 0.0)
        run_by_strips(vae, stream.checkpoint)

    @property
    def tiling(self) -> bool:
        return bool(self._vae.use_tiling)

    @property
    def slicing(self) -> bool:
        return bool(self._vae.use_slicing)

    def set_tiling(self, on: bool) -> None:
        if on != self.tiling:
            (self._vae.enable_tiling if on else self._vae.disable_tiling)()
            self._raise_version()

    def set_slicing(self, on: bool) -> None:
        if on != self.slicing:
            (self._vae.enable_slicing if on else self._vae.disable_slicing)()
            self._raise_version()

    def _raise_version(self) -> None:
        self.encoder.version += 1
        self.decoder.version += 1

    async def decode(self, latents: torch.Tensor, kind: str, token: CancellationToken) -> torch.Tensor:
        """Scaled latents [B, C, h, w] to a picture in about -1..1, [B, 3, H, W]."""
        return await self.decode_by(lambda inputs: self.decoder.run(inputs, kind, token), latents, token)

    async def decode_by(self, call: Call, latents: torch.Tensor, token: CancellationToken) -> torch.Tensor:
        """`decode` as a stage of a chain, where `call` runs the decoder."""
        unscaled = latents.to(self._dtype) / self._scale + self._shift
        if self.tiling:
            return await self.decoder.run((unscaled,), EAGER, token)
        return await call((unscaled,))

    async def encode(self, picture: torch.Tensor, kind: str, token: CancellationToken) -> torch.Tensor:
        """A picture in -1..1, [B, 3, H, W], to the mean of its scaled latents [B, C, h, w]."""
        parameters = await self.encoder.run((picture.to(self._dtype),), EAGER if self.tiling else kind, token)
        return (parameters[:, : self.channels] - self._shift) * self._scale


def to_rgb(picture: torch.Tensor) -> torch.Tensor:
    """A picture in -1..1, [1, 3, H, W], as 8-bit RGB, uint8 [H, W, 3], rounded to nearest."""
    levels = picture[0].float().clamp(-1, 1).add(1).mul(127.5).round()
    return levels.to(torch.uint8).permute(1, 2, 0).contiguous().cpu()
