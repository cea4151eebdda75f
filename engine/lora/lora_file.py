"""LoRAs (Hu et al. 2021) as data: low-rank pairs by the names of the layers that they change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

# the parts of a model that a LoRA may change, by their folders in diffusers' layout
PARTS = ("unet", "text_encoder", "text_encoder_2")


@dataclass(frozen=True, eq=False)
class LowRankPair:
    """What a LoRA adds to one layer: `up @ down * scale`, all f32.

    `down` is [r, in], or [r, in, kh, kw] for a convolution; `up` is [out, r]. `scale` is alpha / rank.
    """

    down: torch.Tensor
    up: torch.Tensor
    scale: float = 1.0

    @property
    def rank(self) -> int:
        return self.down.shape[0]


@dataclass(frozen=True, eq=False)
class LoraFile:
    """A LoRA as it was read. Layers are named as in diffusers' UNet2DConditionModel and transformers' text encoders.

    `family` says which models it is for. `metadata` is the file's own, as it stands there: trigger words, training.
    """

    path: Path
    family: str
    unet: Mapping[str, LowRankPair] = field(repr=False)
    text_encoder: Mapping[str, LowRankPair] = field(repr=False)
    text_encoder_2: Mapping[str, LowRankPair] = field(default_factory=dict, repr=False)
    metadata: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.path.stem

    def part(self, name: str) -> Mapping[str, LowRankPair]:
        """The pairs of one of `PARTS`."""
        if name not in PARTS:
            raise ValueError(f"a LoRA has no part {name}")
        pairs: Mapping[str, LowRankPair] = getattr(self, name)
        return pairs
