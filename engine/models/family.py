"""The families of models that Safelight runs: what lies in their folders, and the settings that suit them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.models.latent_rgb import SD1 as SD1_RGB
from engine.models.latent_rgb import SDXL as SDXL_RGB
from engine.models.latent_rgb import LatentRgb
from engine.request import Sampler


@dataclass(frozen=True)
class Family:
    """One architecture. `label` is its name in sentences.

    `parts` are the folders with weights and their shares of all weights; `tokenizers` the folders of as many tokenizers
    as there are text encoders, in order.
    """

    name: str
    label: str
    parts: Mapping[str, float]
    tokenizers: tuple[str, ...]
    guidance_scale: float
    sampler: Sampler
    latent_rgb: LatentRgb

    @property
    def text_encoders(self) -> tuple[str, ...]:
        """The folders of the text encoders, in the order in which the noise predictor sees their embeddings."""
        return tuple(part for part in self.parts if part.startswith("text_encoder"))


SD1 = Family(
    name="sd1",
    label="Stable Diffusion",
    parts={"text_encoder": 0.2, "unet": 0.7, "vae": 0.1},
    tokenizers=("tokenizer",),
    guidance_scale=7.0,
    sampler=Sampler.DPMPP_2M_KARRAS,
    latent_rgb=SD1_RGB,
)
SDXL = Family(
    name="sdxl",
    label="Stable Diffusion XL",
    parts={"text_encoder": 0.04, "text_encoder_2": 0.2, "unet": 0.74, "vae": 0.02},
    tokenizers=("tokenizer", "tokenizer_2"),
    guidance_scale=5.0,
    sampler=Sampler.EULER,
    latent_rgb=SDXL_RGB,
)
_BY_NAME = {"sd1": SD1, "starter": SD1, "sdxl": SDXL}


def family_named(name: str) -> Family:
    """The family of a `ModelDescription`."""
    return _BY_NAME[name]


def has_part(index: Mapping[str, Any], part: str) -> bool:
    """Whether a model_index.json names a part; one left out on purpose is named as [null, null]."""
    return isinstance(index.get(part), list) and index[part] != [None, None]


def family_of(index: Mapping[str, Any]) -> Family:
    """The family of a folder with this model_index.json, judged by its text encoders."""
    return SDXL if has_part(index, "text_encoder_2") or has_part(index, "tokenizer_2") else SD1


def why_apart(family: Family, unet: Mapping[str, Any], texts: Sequence[Mapping[str, Any]]) -> str | None:
    """What keeps a UNet and text encoders with these configs from working together, or None.

    Raises `KeyError` and `TypeError` for configs that lack what it takes to know.
    """
    if unet["cross_attention_dim"] != sum(text["hidden_size"] for text in texts):
        return "the UNet and the text encoder don't belong together"
    added = unet.get("addition_embed_type")
    if family is not SDXL:
        return None if added is None else f"the UNet takes '{added}' embeddings, and nothing in the folder makes them"
    if added != "text_time":
        return f"an SDXL UNet takes 'text_time' embeddings, and this one '{added}'"
    second = texts[1]
    if "CLIPTextModelWithProjection" not in (second.get("architectures") or ()):
        return "the second text encoder has no projection"
    projected = second["projection_dim"]
    if projected != second["hidden_size"]:
        return f"the second text encoder projects a width of {second['hidden_size']} to {projected}"
    if unet["projection_class_embeddings_input_dim"] != 6 * unet["addition_time_embed_dim"] + projected:
        return "the UNet and the second text encoder don't belong together"
    return None
