"""The layouts that LoRAs are stored in, brought to one by diffusers' own converters.

The one is PEFT's: `<layer>.lora_A.weight` [r, in] and `<layer>.lora_B.weight` [out, r], by part of the model. Read are
kohya's layout, which LyCORIS shares (with diffusers' or the original block names), and diffusers' three.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace

import torch

from engine.lora.lora_file import PARTS

Tensors = dict[str, torch.Tensor]

_KOHYA = ("lora_unet_", "lora_te_", "lora_te1_", "lora_te2_")
_PEFT = "base_model.model."
_UNET_ROOTS = ("down_blocks.", "mid_block.", "up_blocks.", "conv_in.", "conv_out.", "time_embedding.", "add_embedding.")
_TRANSFORMER = re.compile(
    r"^(transformer\.|diffusion_model\.|model\.diffusion_model\.|lora_transformer_|(base_model\.model\.)?"
    r"(double_blocks|single_blocks|transformer_blocks|single_transformer_blocks|joint_blocks)\."
    r"|lora_unet_(double|single|joint|blocks|layers))"
)
_SGM_BLOCK = re.compile(r"^(lora_unet_(?:input_blocks|middle_block|output_blocks)_\d+)_")
_PAIR = re.compile(r"^(.+)\.lora_([AB])(?:\.\w+)?\.weight$")
# what other adapters of LyCORIS and PEFT call their tensors
_OTHERS = (
    ("DoRA", ("dora_scale", "magnitude_vector")),
    ("LoHa", (".hada_",)),
    ("LoKr", (".lokr_",)),
    ("OFT", (".oft_", ".oft.")),
    ("GLoRA", (".a1.", ".a2.", ".b1.", ".b2.")),
    ("IA³", (".on_input", "ia3_")),
    ("bias", (".lora_B.bias", ".lora_up.bias", ".lora.up.bias", ".diff_b", ".b_norm")),
    ("whole-weight", (".diff", ".w_norm")),
)


class NotALora(ValueError):
    """Why the tensors are no LoRA that can be used; goes on after the file's name."""


@dataclass
class Converted:
    """Pairs (down, up) and alphas by part and layer; `unused` are the keys of tensors that belong to no layer."""

    pairs: dict[str, dict[str, tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=dict)
    alphas: dict[str, dict[str, float]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


def is_for_a_transformer(keys: Iterable[str]) -> bool:
    """Whether the keys name layers of a model that has a transformer in the UNet's place."""
    return any(_TRANSFORMER.match(key) for key in keys)


def needs_adapter_config(keys: Iterable[str]) -> bool:
    """Whether PEFT itself wrote the file, which leaves alpha to the adapter_config.json beside it."""
    return any(key.startswith(_PEFT) for key in keys)


def convert(tensors: Mapping[str, torch.Tensor], layers_per_block: int) -> Converted:
    """Bring the tensors of a file into one layout. `layers_per_block` is what original block names are numbered by.

    Raises `NotALora` for other adapters than low-rank pairs and for pairs that aren't whole.
    """
    for kind, marks in _OTHERS:
        if key := next((key for key in tensors if any(mark in key for mark in marks)), None):
            raise NotALora(
                f"holds {kind} layers ({key}), which are no low-rank pairs. Safelight loads LoRA and LoCon files."
            )
    tensors = _without_mid(tensors)
    if any(key.startswith(_KOHYA) for key in tensors):
        return _from_kohya(tensors, layers_per_block)
    return _from_diffusers(tensors)


def _without_mid(tensors: Mapping[str, torch.Tensor]) -> Tensors:
    """LoCon's Tucker form folded: `lora_mid` [r, r, kh, kw] and `lora_down` [r, in, 1, 1] are one [r, in, kh, kw]."""
    folded = dict(tensors)
    for key in [key for key in tensors if key.endswith(".lora_mid.weight")]:
        mid = folded.pop(key).float()
        down_key = key.removesuffix("lora_mid.weight") + "lora_down.weight"
        down = folded.get(down_key)
        if down is None or mid.dim() != 4 or down.shape[0] != mid.shape[1] or down.shape[2:].numel() != 1:
            raise NotALora(f"is damaged: {key} and {down_key} don't belong together.")
        folded[down_key] = torch.einsum("irhw,rc->ichw", mid, down.float().flatten(1))
    return folded


def _from_kohya(tensors: Tensors, layers_per_block: int) -> Converted:
    from diffusers.loaders.lora_conversion_utils import _convert_non_diffusers_lora_to_diffusers

    layers = {key: tensor for key, tensor in tensors.items() if key.startswith(_KOHYA)}
    _check_whole(layers)
    layers = _with_diffusers_block_names(layers, layers_per_block)
    try:
        renamed, alphas = _convert_non_diffusers_lora_to_diffusers(layers)
    except (KeyError, ValueError, IndexError) as error:
        raise NotALora(f"names layers that no UNet has ({error}).") from error
    converted = _by_part(renamed)
    for key, alpha in alphas.items():
        part, layer = _part_of(_peft_names({key.removesuffix(".alpha"): alpha}))
        converted.alphas[part][re.split(r"\.lora_[AB]", layer)[0]] = float(alpha)
    converted.unused += [key for key in tensors if not key.startswith(_KOHYA)]
    return converted


def _check_whole(layers: Tensors) -> None:
    kinds: dict[str, set[str]] = {}
    for key in layers:
        layer, _, kind = key.partition(".")
        kinds.setdefault(layer, set()).add(kind)
    for layer, found in kinds.items():
        if unknown := found - {"lora_down.weight", "lora_up.weight", "alpha"}:
            raise NotALora(f"holds {layer}.{min(unknown)}, which is no part of a low-rank pair.")
        if missing := {"lora_down.weight", "lora_up.weight"} - found:
            raise NotALora(f"is incomplete: {layer} lacks {min(missing)}.")
    for key, tensor in layers.items():
        if key.endswith(".alpha") and tensor.numel() != 1:
            raise NotALora(f"is damaged: {key} should be one number.")


def _with_diffusers_block_names(layers: Tensors, layers_per_block: int) -> Tensors:
    """Original block names (input_blocks_4_1_…) replaced by diffusers'.

    Block by block, as the converter takes input_blocks_1 for a prefix of input_blocks_10.
    """
    from diffusers.loaders.lora_conversion_utils import _maybe_map_sgm_blocks_to_diffusers

    blocks: dict[str, Tensors] = {}
    for key, tensor in layers.items():
        found = _SGM_BLOCK.match(key)
        blocks.setdefault(found[1] if found else "", {})[key] = tensor
    renamed = blocks.pop("", {})
    config = SimpleNamespace(layers_per_block=layers_per_block)
    for block in blocks.values():
        try:
            renamed |= _maybe_map_sgm_blocks_to_diffusers(block, config)
        except (ValueError, IndexError) as error:
            raise NotALora(f"names layers that no UNet has ({next(iter(block), error)}).") from error
    return renamed


def _from_diffusers(tensors: Tensors) -> Converted:
    named: Tensors = {}
    alphas: dict[str, float] = {}
    unused: list[str] = []
    for key, tensor in tensors.items():
        name = key.removeprefix(_PEFT)
        if not name.startswith(tuple(f"{part}." for part in PARTS)):
            name = f"unet.{name}" if name.startswith(_UNET_ROOTS) else f"text_encoder.{name}"
        if "lora" not in key:
            unused.append(key)
        elif name.endswith(".alpha") and tensor.numel() == 1:
            alphas[name.removesuffix(".alpha").removesuffix(".lora")] = float(tensor)
        else:
            named[name] = tensor
    converted = _by_part(named)
    for name, alpha in alphas.items():
        part, _, layer = name.partition(".")
        converted.alphas[part][layer] = alpha
    converted.unused += unused
    return converted


def _by_part(tensors: Tensors) -> Converted:
    """From diffusers' layouts, old or new, with each key under its part's name."""
    halves: dict[tuple[str, str], Tensors] = {}
    for key, tensor in tensors.items():
        part, name = _part_of(_peft_names({key: tensor}))
        found = _PAIR.match(name)
        if found is None:
            raise NotALora(f"holds {key}, which is no part of a low-rank pair.")
        halves.setdefault((part, found[1]), {})[found[2]] = tensor
    converted = Converted(pairs={part: {} for part in PARTS}, alphas={part: {} for part in PARTS})
    for (part, layer), pair in halves.items():
        if len(pair) != 2:
            raise NotALora(f"is incomplete: {part}.{layer} has one half of its pair.")
        converted.pairs[part][layer] = pair["A"], pair["B"]
    return converted


def _peft_names(tensors: Mapping[str, object]) -> str:
    """The name that PEFT gives the one tensor."""
    from diffusers.utils.state_dict_utils import (
        StateDictType,
        convert_state_dict_to_peft,
        convert_unet_state_dict_to_peft,
    )

    if next(iter(tensors)).startswith("text_encoder"):
        tensors = convert_state_dict_to_peft(tensors, StateDictType.DIFFUSERS_OLD)
    return next(iter(convert_unet_state_dict_to_peft(tensors)))


def _part_of(name: str) -> tuple[str, str]:
    part, _, rest = name.partition(".")
    return part, rest
