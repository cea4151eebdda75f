"""Families of models with a UNet, told apart by the width of their prompt embeddings."""

from __future__ import annotations

from collections.abc import Mapping

from engine.lora.lora_file import LowRankPair

ANOTHER = "another model"
TRANSFORMER = "Flux, SD 3 or another model with a transformer"
SDXL = "SDXL"
_BY_WIDTH = {768: "SD 1.x", 1024: "SD 2.x", 2048: SDXL}


def family_of_width(width: int) -> str:
    """The family whose UNet looks at prompt embeddings of this width."""
    return _BY_WIDTH.get(width, ANOTHER)


def family_of_pairs(parts: Mapping[str, Mapping[str, LowRankPair]]) -> str:
    """The family that a LoRA was made for: by its layers' names, and by the widths that they take."""
    unet, text = parts["unet"], parts["text_encoder"]
    if parts["text_encoder_2"] or any(layer.startswith("add_embedding.") for layer in unet):
        return SDXL
    widths = {pair.down.shape[1] for layer, pair in unet.items() if layer.endswith((".attn2.to_k", ".attn2.to_v"))}
    if not widths:  # the text encoder of SDXL's first kind is that of SD 1.x
        widths = {pair.down.shape[1] for layer, pair in text.items() if layer.endswith((".q_proj", ".k_proj", ".fc1"))}
    return family_of_width(widths.pop()) if len(widths) == 1 else ANOTHER
