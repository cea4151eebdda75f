"""What LoRAs add to the inputs of a model's parts in one picture."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

import torch

from engine.lora.layout import AdapterLayout


@dataclass(frozen=True, eq=False)
class PartAdapters:
    """Of one part: `inputs` are strengths [rank], then down and up of each of the layout's layers, in f32.

    `origin` tells which LoRAs they are of and at which strengths.
    """

    layout: AdapterLayout
    inputs: tuple[torch.Tensor, ...]
    origin: Hashable


@dataclass(frozen=True, eq=False)
class Adapters:
    """By part of the model ("unet", "text_encoder", …); parts that no LoRA changes aren't there and run as they are."""

    parts: Mapping[str, PartAdapters] = field(default_factory=dict)

    def layers(self, part: str) -> tuple[str, ...]:
        """The layers that take low-rank pairs."""
        return self.parts[part].layout.layers if part in self.parts else ()

    def inputs(self, part: str) -> tuple[torch.Tensor, ...]:
        """What the part takes after its own inputs."""
        return self.parts[part].inputs if part in self.parts else ()

    def origin(self, part: str) -> Hashable:
        """Equal for the same LoRAs at the same strengths; None for a part that runs as it is."""
        return self.parts[part].origin if part in self.parts else None


NO_ADAPTERS = Adapters()
