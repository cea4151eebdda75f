"""The starter's two networks and its noise schedule, shared by the training scripts and the export."""

from __future__ import annotations

from typing import Any

from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel

SIDE = 128  # pixels
VAE_FACTOR = 8
LATENT_CHANNELS = 4
LATENT_SIDE = SIDE // VAE_FACTOR
TEXT_LENGTH = 32  # tokens
TEXT_WIDTH = 384  # MiniLM's hidden size

# Stable Diffusion's schedule (Rombach et al. 2022) with v-prediction (Salimans & Ho 2022).
NOISE: dict[str, Any] = {
    "num_train_timesteps": 1000,
    "beta_start": 0.00085,
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "prediction_type": "v_prediction",
}


def make_vae(channels: tuple[int, ...] = (24, 48, 96, 128), **config: Any) -> AutoencoderKL:
    """A VAE with random weights: 3.2 M parameters by default, [B, 3, 128, 128] in -1..1 <-> [B, 4, 16, 16].

    Every further entry of `channels` halves the latents' sides once more.
    """
    return AutoencoderKL(
        in_channels=3,
        out_channels=3,
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        block_out_channels=channels,
        layers_per_block=1,
        latent_channels=LATENT_CHANNELS,
        norm_num_groups=8,
        sample_size=SIDE,
        **config,
    )


def make_unet(channels: tuple[int, int, int] = (64, 128, 192)) -> UNet2DConditionModel:
    """A noise predictor with random weights: 11.5 M parameters by default.

    Takes latents [B, 4, 16, 16] and text [B, 32, 384]; cross-attention works at 8² and 4².
    """
    return UNet2DConditionModel(
        sample_size=LATENT_SIDE,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=channels,
        layers_per_block=1,
        cross_attention_dim=TEXT_WIDTH,
        attention_head_dim=8,
        norm_num_groups=16,
    )


def make_noise_schedule() -> DDPMScheduler:
    return DDPMScheduler(**NOISE)
