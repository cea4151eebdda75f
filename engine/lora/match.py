"""Fitting a LoRA to a loaded model: its layers' names and shapes become the model's, or it is refused."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from engine.errors import ModelRefused
from engine.lora import families
from engine.lora.layout import all_layers, shapes_for
from engine.lora.lora_file import PARTS, LoraFile, LowRankPair

log = logging.getLogger(__name__)

_PREFIX = "text_model."  # of CLIP's layers, in some versions of transformers


def match(lora: LoraFile, modules: Mapping[str, torch.nn.Module], model: str) -> LoraFile:
    """The LoRA with the names and shapes of `modules` ("unet", "text_encoder"), the parts of the model called `model`.

    Raises `ModelRefused`, saying which family the LoRA is for and which the model is, where a shape doesn't fit,
    where no layer is known, or where none of the UNet's is. Single layers that aren't known are left out, with one line
    in the log.
    """
    fitted: dict[str, dict[str, LowRankPair]] = {part: {} for part in PARTS}
    unknown: list[str] = []
    for part in PARTS:
        pairs, module = lora.part(part), modules.get(part)
        names = {} if module is None else {_plain(name): name for name in all_layers(module)}
        for layer, pair in pairs.items():
            name = names.get(_plain(layer))
            if module is None or name is None:
                unknown.append(f"{part}.{layer}")
                continue
            fits = _fitted(pair, module.get_submodule(name))
            if fits is None:
                raise ModelRefused(_sentence(lora, modules, model, f"{part}.{name} has another size there."))
            fitted[part][name] = fits
    if not any(fitted.values()):
        raise ModelRefused(_sentence(lora, modules, model, "None of its layers is there."))
    if lora.unet and not fitted["unet"]:
        raise ModelRefused(_sentence(lora, modules, model, "None of its UNet's layers is there."))
    if unknown:
        log.warning("%s: %d layers aren't in %s: %s", lora.path, len(unknown), model, ", ".join(sorted(unknown)))
    return replace(
        lora, unet=fitted["unet"], text_encoder=fitted["text_encoder"], text_encoder_2=fitted["text_encoder_2"]
    )


def family_of(modules: Mapping[str, torch.nn.Module]) -> str:
    """The family of a loaded model."""
    config: Any = getattr(modules.get("unet"), "config", None)
    width = getattr(config, "cross_attention_dim", None)
    return families.family_of_width(width) if isinstance(width, int) else families.ANOTHER


def _plain(layer: str) -> str:
    return layer.removeprefix(_PREFIX)


def _fitted(pair: LowRankPair, layer: torch.nn.Module) -> LowRankPair | None:
    """The pair in the layer's shapes, or None. A linear layer and a 1×1 convolution are the same to a pair."""
    down, up = shapes_for(layer, pair.rank)
    if tuple(pair.up.shape) != up or pair.down.numel() != torch.Size(down).numel() or pair.down.shape[1] != down[1]:
        return None
    if pair.down.shape[2:].numel() != 1 and tuple(pair.down.shape) != down:
        return None
    return replace(pair, down=pair.down.reshape(down))


def _sentence(lora: LoraFile, modules: Mapping[str, torch.nn.Module], model: str, why: str) -> str:
    mine, other = family_of(modules), lora.family
    if mine == other:
        other = families.ANOTHER if mine == families.ANOTHER else f"another model of the family {mine}"
    is_what = "" if mine == families.ANOTHER else f" is {mine} and"
    return f"{lora.path} is a LoRA for {other}; {model}{is_what} can't use it. {why}"
