"""Reading a LoRA from a .safetensors file. Nothing is unpickled, nothing is loaded before the header was checked."""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from engine.cancellation import CancellationToken
from engine.errors import ModelRefused
from engine.lora import families
from engine.lora.formats import Converted, NotALora, convert, is_for_a_transformer, needs_adapter_config
from engine.lora.lora_file import PARTS, LoraFile, LowRankPair
from engine.models.description import check_header, read_config

log = logging.getLogger(__name__)

_PICKLES = (".bin", ".ckpt", ".pt", ".pth", ".pkl")
_LAYER_NAME = re.compile(r"[\w.]+")
_ADAPTER_CONFIG = "lora_adapter_metadata"  # where diffusers keeps PEFT's config in a file's metadata


def read_lora(path: Path, token: CancellationToken = CancellationToken.none, layers_per_block: int = 2) -> LoraFile:
    """Read a LoRA in diffusers', PEFT's, kohya's or LyCORIS' layout, as f32.

    `layers_per_block` is the UNet's, which original block names (input_blocks_4_1) are numbered by: 2 in every family.
    A LoRA for a model with a transformer comes back empty, with its family. Raises `ModelRefused`, naming the file and
    the reason, for anything that isn't a whole LoRA of low-rank pairs, and `OperationCancelled` between two tensors.
    """
    _check_file(path)
    tensors, metadata = _tensors(path, token)
    if is_for_a_transformer(tensors):
        return LoraFile(path, families.TRANSFORMER, {}, {}, metadata=metadata)
    try:
        converted = convert(tensors, layers_per_block)
        config = _adapter_config(path, metadata, needs_adapter_config(tensors))
        parts = {part: _pairs(part, converted, config) for part in PARTS}
    except NotALora as error:
        raise ModelRefused(f"{path} {error}") from error
    if not any(parts.values()):
        raise ModelRefused(f"{path} holds no LoRA: none of its {len(tensors)} tensors is part of a low-rank pair.")
    if converted.unused:
        unused = sorted(converted.unused)
        log.info("%s: %d tensors belong to no layer and are left out, %s for one", path, len(unused), unused[0])
    return LoraFile(path, families.family_of_pairs(parts), **parts, metadata=metadata)


def _check_file(path: Path) -> None:
    if path.suffix.lower() in _PICKLES:
        raise ModelRefused(f"{path} is a pickle, which could run code when opened. Get the LoRA as .safetensors file.")
    try:
        check_header(path)
    except ModelRefused as refusal:
        if _starts_like_a_pickle(path):
            raise ModelRefused(
                f"{path} isn't a safetensors file but a pickle, which could run code when opened. It is left closed."
            ) from refusal
        raise


def _starts_like_a_pickle(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
    except OSError:
        return False


def _tensors(path: Path, token: CancellationToken) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    tensors: dict[str, torch.Tensor] = {}
    try:
        with safe_open(path, framework="pt", device="cpu") as opened:
            for key in opened.keys():  # noqa: SIM118 - it is no mapping
                token.raise_if_cancelled()
                tensors[key] = opened.get_tensor(key)
            return tensors, dict(opened.metadata() or {})
    except (SafetensorError, OSError, AttributeError, TypeError) as error:  # a dtype that this torch doesn't know
        raise ModelRefused(f"{path} can't be read: {error}.") from error


def _adapter_config(path: Path, metadata: Mapping[str, str], beside: bool) -> dict[str, Any] | None:
    """PEFT's config of the adapter, by part where it is in the file, or for all parts; None where there is none."""
    if beside:
        if not (path.parent / "adapter_config.json").is_file():
            raise NotALora(
                "was written by PEFT, which keeps its alpha in adapter_config.json. Put that file beside it."
            )
        return dict.fromkeys(PARTS, read_config(path.parent / "adapter_config.json"))
    if _ADAPTER_CONFIG not in metadata:
        return None
    try:
        flat = json.loads(metadata[_ADAPTER_CONFIG])
        config: dict[str, Any] = {part: {} for part in PARTS}
        for key, value in flat.items():
            part, _, name = key.partition(".")
            config.setdefault(part, {})[name] = value
        return config
    except (ValueError, AttributeError, RecursionError) as error:
        raise NotALora(f"has garbled metadata ({_ADAPTER_CONFIG}: {error}).") from error


def _pairs(part: str, converted: Converted, config: dict[str, Any] | None) -> dict[str, LowRankPair]:
    pairs = {}
    for layer, (down, up) in converted.pairs[part].items():
        where = f"{part}.{layer}"
        if down.dim() not in (2, 4) or up.dim() not in (2, 4) or up.shape[2:].numel() != 1:
            raise NotALora(f"is damaged: {where} has pairs of shapes {tuple(down.shape)} and {tuple(up.shape)}.")
        down, up = down.float(), up.float().flatten(1)
        if down.shape[0] != up.shape[1] or 0 in (*down.shape, *up.shape):
            raise NotALora(f"is damaged: the ranks of {where} are {down.shape[0]} down and {up.shape[1]} up.")
        alpha = converted.alphas[part].get(layer)
        scale = alpha / down.shape[0] if alpha is not None else _scale(config, part, layer, down.shape[0])
        if not (math.isfinite(scale) and down.isfinite().all() and up.isfinite().all()):
            raise NotALora(f"is damaged: {where} holds numbers that aren't finite.")
        pairs[layer] = LowRankPair(down.contiguous(), up.contiguous(), scale)
    return pairs


def _scale(config: dict[str, Any] | None, part: str, layer: str, rank: int) -> float:
    """A pair's scale by PEFT's config (`LoraConfig`); 1 where there is none."""
    options = (config or {}).get(part) or {}
    if options.get("use_dora"):
        raise NotALora("holds DoRA layers, which are no low-rank pairs. Safelight loads LoRA and LoCon files.")
    try:
        alpha = float(options.get("lora_alpha", rank))
        for pattern, value in (options.get("alpha_pattern") or {}).items():
            name = pattern.removeprefix("^")
            if not _LAYER_NAME.fullmatch(name):  # a file's regular expressions may run for ever
                raise NotALora(f"has an adapter config with the pattern {pattern[:100]}, which isn't a layer's name.")
            if f".{layer}".endswith(f".{name}"):
                alpha = float(value)
                break
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, NotALora):
            raise
        raise NotALora(f"has a garbled adapter config ({error}).") from error
    return alpha / (math.sqrt(rank) if options.get("use_rslora") else rank)
