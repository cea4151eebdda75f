"""The four modules of a model as functions of tensors alone: what eager plans run and compiled plans are made from."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import torch


class Component(StrEnum):
    """What a host runs. The VAE's two halves share one set of weights."""

    TEXT_ENCODER = "text encoder"
    UNET = "noise predictor"
    VAE_ENCODER = "VAE encoder"
    VAE_DECODER = "VAE decoder"

    @property
    def folder(self) -> str:
        """The component's folder in a model in diffusers' layout."""
        return {"text encoder": "text_encoder", "noise predictor": "unet"}.get(self.value, "vae")


class TextEncoder(torch.nn.Module):
    """Token ids int64 [B, L] and attention mask int64 [B, L] to the last hidden state [B, L, width]."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=ids, attention_mask=mask)[0]


class NoisePredictor(torch.nn.Module):
    """Latents [B, C, h, w], timestep (a scalar) and prompt embeddings [B, L, width] to the prediction [B, C, h, w]."""

    def __init__(self, unet: torch.nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        return self.unet(latents, timestep, prompt, return_dict=False)[0]


class VaeDecoder(torch.nn.Module):
    """Unscaled latents [B, C, h, w] to a picture in -1..1, [B, 3, H, W]."""

    def __init__(self, vae: Any) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, latents: torch.Tensor) -> torch.Tensor:
        return self.vae.decode(latents, return_dict=False)[0]


class VaeEncoder(torch.nn.Module):
    """A picture in -1..1, [B, 3, H, W], to the posterior's mean and log-variance, [B, 2 C, h, w], unscaled."""

    def __init__(self, vae: Any) -> None:
        super().__init__()
        self.vae = vae

    def forward(self, picture: torch.Tensor) -> torch.Tensor:
        return self.vae.encode(picture, return_dict=False)[0].parameters


def as_function(component: Component, module: torch.nn.Module) -> torch.nn.Module:
    """The module of a component in the form that its host runs."""
    forms: dict[Component, type[Any]] = {
        Component.TEXT_ENCODER: TextEncoder,
        Component.UNET: NoisePredictor,
        Component.VAE_ENCODER: VaeEncoder,
        Component.VAE_DECODER: VaeDecoder,
    }
    return forms[component](module).eval()


def example_inputs(component: Component, module: Any) -> tuple[torch.Tensor, ...]:
    """Small inputs to trace the component with; every size in them may differ in use."""
    config = module.config
    if component is Component.TEXT_ENCODER:
        length = min(77, config.max_position_embeddings)
        return torch.zeros(1, length, dtype=torch.int64), torch.ones(1, length, dtype=torch.int64)
    if component is Component.UNET:
        side = 2 ** (len(config.block_out_channels) + 1)
        prompt = torch.zeros(2, 77, config.cross_attention_dim)
        return torch.zeros(2, config.in_channels, side, side), torch.tensor(500.0), prompt
    if component is Component.VAE_DECODER:
        return (torch.zeros(1, config.latent_channels, 8, 8),)
    return (torch.zeros(1, config.in_channels, 64, 64),)
