"""The modules of a model as functions of tensors alone: what eager plans run and compiled plans are made from."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import torch


class Component(StrEnum):
    """What a host runs. The VAE's two halves share one set of weights.

    Stable Diffusion 1.x has one text encoder; SDXL has two, whose function is another even where the weights are the
    same, so they bear other names.
    """

    TEXT_ENCODER = "text encoder"
    TEXT_ENCODER_1 = "first text encoder"
    TEXT_ENCODER_2 = "second text encoder"
    UNET = "noise predictor"
    VAE_ENCODER = "VAE encoder"
    VAE_DECODER = "VAE decoder"

    @property
    def folder(self) -> str:
        """The component's folder in a model in diffusers' layout."""
        return _FOLDERS.get(self.value, "vae")


_FOLDERS = {
    "text encoder": "text_encoder",
    "first text encoder": "text_encoder",
    "second text encoder": "text_encoder_2",
    "noise predictor": "unet",
}
TEXT_ENCODERS = (Component.TEXT_ENCODER, Component.TEXT_ENCODER_1, Component.TEXT_ENCODER_2)


class TextEncoder(torch.nn.Module):
    """Token ids int64 [B, L] and attention mask int64 [B, L] to the last hidden state [B, L, width]."""

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.encoder(input_ids=ids, attention_mask=mask)[0]


class PenultimateTextEncoder(torch.nn.Module):
    """Token ids int64 [B, L] and attention mask int64 [B, L] to the hidden state before the last layer, unnormalised.

    With a projection (CLIPTextModelWithProjection) a row follows the L: the projection of the end token's last hidden
    state, which SDXL (Podell et al. 2023, section 2.1) calls the pooled text embedding. [B, L, width] or [B, L + 1,
    width]; the projection is as wide as the hidden state.
    """

    def __init__(self, encoder: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self._projects = hasattr(encoder, "text_projection")

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        answer = self.encoder(input_ids=ids, attention_mask=mask, output_hidden_states=True)
        hidden: torch.Tensor = answer.hidden_states[-2]
        return torch.cat([hidden, answer.text_embeds[:, None]], dim=1) if self._projects else hidden


class NoisePredictor(torch.nn.Module):
    """Latents [B, C, h, w], timestep (a scalar) and prompt embeddings [B, L, width] to the prediction [B, C, h, w]."""

    def __init__(self, unet: torch.nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(self, latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
        return self.unet(latents, timestep, prompt, return_dict=False)[0]


class SizedNoisePredictor(torch.nn.Module):
    """SDXL's: as `NoisePredictor`, and pooled text embeddings [B, P] and time ids [B, 6]: height and width before
    cropping, top and left of the crop, height and width wanted, in pixels (Podell et al. 2023, section 2.2).
    """

    def __init__(self, unet: torch.nn.Module) -> None:
        super().__init__()
        self.unet = unet

    def forward(
        self,
        latents: torch.Tensor,
        timestep: torch.Tensor,
        prompt: torch.Tensor,
        pooled: torch.Tensor,
        time_ids: torch.Tensor,
    ) -> torch.Tensor:
        added = {"text_embeds": pooled, "time_ids": time_ids}
        return self.unet(latents, timestep, prompt, added_cond_kwargs=added, return_dict=False)[0]


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


def takes_sizes(unet: Any) -> bool:
    """Whether a UNet is of SDXL's kind, which is told the picture's size and the pooled text embedding."""
    return getattr(getattr(unet, "config", None), "addition_embed_type", None) == "text_time"


def as_function(component: Component, module: torch.nn.Module) -> torch.nn.Module:
    """The module of a component in the form that its host runs."""
    forms: dict[Component, type[Any]] = {
        Component.TEXT_ENCODER: TextEncoder,
        Component.TEXT_ENCODER_1: PenultimateTextEncoder,
        Component.TEXT_ENCODER_2: PenultimateTextEncoder,
        Component.UNET: SizedNoisePredictor if takes_sizes(module) else NoisePredictor,
        Component.VAE_ENCODER: VaeEncoder,
        Component.VAE_DECODER: VaeDecoder,
    }
    return forms[component](module).eval()


def pooled_width(unet: Any) -> int:
    """How wide the pooled text embeddings are that a UNet of SDXL's kind takes."""
    return int(unet.config.projection_class_embeddings_input_dim - 6 * unet.config.addition_time_embed_dim)


def example_inputs(component: Component, module: Any) -> tuple[torch.Tensor, ...]:
    """Small inputs to trace the component with; every size in them may differ in use."""
    config = module.config
    if component in TEXT_ENCODERS:
        length = min(77, config.max_position_embeddings)
        return torch.zeros(1, length, dtype=torch.int64), torch.ones(1, length, dtype=torch.int64)
    if component is Component.UNET:
        side = 2 ** (len(config.block_out_channels) + 1)
        prompt = torch.zeros(2, 77, config.cross_attention_dim)
        inputs = torch.zeros(2, config.in_channels, side, side), torch.tensor(500.0), prompt
        return (*inputs, torch.zeros(2, pooled_width(module)), torch.ones(2, 6)) if takes_sizes(module) else inputs
    if component is Component.VAE_DECODER:
        return (torch.zeros(1, config.latent_channels, 8, 8),)
    return (torch.zeros(1, config.in_channels, 64, 64),)
