"""Which layers of a module take low-rank pairs, and of which rank: what a plan with LoRAs is built for.

There are two sets of layers for each module, so that one LoRA can take another's place in the same plan: "attention",
which nearly every LoRA keeps to, and "all". Ranks are padded to powers of two for the same reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from engine.lora.lora_file import LowRankPair

LEAST_RANK = 8
AdapterShapes = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class AdapterLayout:
    """`layers` that take pairs, in the order of a module's own, and the rank of every pair: 8, 16, 32, …"""

    layers: tuple[str, ...]
    rank: int

    def holds(self, other: AdapterLayout) -> bool:
        """Whether whatever fits the other layout fits this one too."""
        return self.rank >= other.rank and set(self.layers) >= set(other.layers)


def padded(rank: int) -> int:
    """The smallest of 8, 16, 32, … that holds `rank`."""
    return max(LEAST_RANK, 1 << (rank - 1).bit_length())


def all_layers(module: torch.nn.Module) -> tuple[str, ...]:
    """Every layer that can take a pair: linear, or an ungrouped convolution with zeros around it."""
    return tuple(name for name, part in module.named_modules() if _takes_pairs(part))


def attention_layers(module: torch.nn.Module) -> tuple[str, ...]:
    """The linear layers and 1×1 convolutions inside transformer blocks, their ways in and out included.

    In a UNet these are what diffusers' Transformer2DModel and Attention hold, in a text encoder what its repeated
    layers hold: q, k, v, out and the MLP.
    """
    from diffusers import Transformer2DModel, UNet2DConditionModel
    from diffusers.models.attention_processor import Attention

    blocks = (Transformer2DModel, Attention) if isinstance(module, UNet2DConditionModel) else (torch.nn.ModuleList,)
    prefixes = tuple(f"{name}." for name, part in module.named_modules() if isinstance(part, blocks))
    names = (name for name in all_layers(module) if name.startswith(prefixes))
    return tuple(name for name in names if _is_pointwise(module.get_submodule(name)))


def layout_for(
    module: torch.nn.Module, loras: Sequence[Mapping[str, LowRankPair]], at_least: AdapterLayout | None = None
) -> AdapterLayout:
    """The smallest layout of `module` that holds these LoRAs stacked: the pairs of this part of each, by layer.

    It is `at_least` where they fit that. Raises `ValueError` for layers that the module doesn't have: `match` has
    left them out.
    """
    touched = {layer for lora in loras for layer in lora}
    rank = padded(sum(rank_of(lora) for lora in loras))
    if at_least is not None and at_least.holds(AdapterLayout(tuple(touched), rank)):
        return at_least
    for layers in (attention_layers(module), all_layers(module)):
        if touched <= set(layers):
            return AdapterLayout(layers, rank)
    raise ValueError(f"no such layers: {', '.join(sorted(touched - set(all_layers(module))))}")


def rank_of(lora: Mapping[str, LowRankPair]) -> int:
    """The largest rank of a LoRA's pairs; 0 where it has none."""
    return max((pair.rank for pair in lora.values()), default=0)


def shapes_for(part: torch.nn.Module, rank: int) -> AdapterShapes:
    """The shapes of `down` and `up` for one layer: [r, in] or [r, in, kh, kw], and [out, r]."""
    if isinstance(part, torch.nn.Linear):
        return (rank, part.in_features), (part.out_features, rank)
    if isinstance(part, torch.nn.Conv2d):
        return (rank, part.in_channels, *part.kernel_size), (part.out_channels, rank)
    raise ValueError(f"{type(part).__name__} takes no low-rank pair")


def adapter_shapes(module: torch.nn.Module, layout: AdapterLayout) -> list[AdapterShapes]:
    """The shapes of each layer's pair, in the layout's order. `module` is the UNet or text encoder itself."""
    return [shapes_for(module.get_submodule(layer), layout.rank) for layer in layout.layers]


def example_adapter_inputs(module: torch.nn.Module, layers: Sequence[str]) -> tuple[torch.Tensor, ...]:
    """Small tensors to trace an adapted module with: strengths, then down and up of each layer; none without layers.

    The rank may be another in use.
    """
    if not layers:
        return ()
    layout = AdapterLayout(tuple(layers), LEAST_RANK)
    pairs = [torch.zeros(shape) for shapes in adapter_shapes(module, layout) for shape in shapes]
    return torch.ones(layout.rank), *pairs


def _takes_pairs(part: torch.nn.Module) -> bool:
    # exactly these: a subclass may not add its bias or multiply its weight as they do
    if type(part) is torch.nn.Conv2d:
        return part.groups == 1 and part.padding_mode == "zeros" and not isinstance(part.padding, str)
    return type(part) is torch.nn.Linear


def _is_pointwise(part: torch.nn.Module) -> bool:
    return not isinstance(part, torch.nn.Conv2d) or (part.kernel_size == (1, 1) and part.stride == (1, 1))
