"""Latents to colours by linear factors: what previews without the VAE are made with."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class LatentRgb(BaseModel):
    """Linear preview: RGB in -1..1 = latents @ factors + bias, one row of three factors per latent channel."""

    model_config = ConfigDict(frozen=True)

    factors: tuple[tuple[float, float, float], ...]
    bias: tuple[float, float, float] = (0.0, 0.0, 0.0)


# Scaled latents of Stable Diffusion 1.x and 2.x to RGB: measured by many.
SD1 = LatentRgb(
    factors=((0.298, 0.207, 0.208), (0.187, 0.286, 0.173), (-0.158, 0.189, 0.264), (-0.184, -0.271, -0.473))
)
# SDXL's VAE lays its channels out in another way: luminance, cyan to red, lime to purple, pattern. Measured by
# Vass 2023, https://huggingface.co/blog/TimothyAlexisVass/explaining-the-sdxl-latent-space, there in levels of 0..255.
SDXL = LatentRgb(
    factors=((0.471, 0.471, 0.471), (-0.471, -0.039, 0.078), (0.196, 0.118, -0.039), (-0.549, -0.392, -0.275)),
    bias=(0.176, 0.098, 0.020),
)
