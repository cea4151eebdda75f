"""Several LoRAs at once, as the tensors that adapted modules and their plans take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch

from engine.lora.layout import AdapterLayout, adapter_shapes, layout_for, rank_of
from engine.lora.lora_file import LoraFile, LowRankPair

Entries = Sequence[tuple[LoraFile, float]]


class LoraStack:
    """LoRAs, each with its strength, in order; any strength, also below 0 and above 1. Files are as `match` gives them.

    A stack is never changed: `with_entries` makes another, which shares tensors with this one where it can.
    """

    def __init__(self, entries: Entries = ()) -> None:
        self._files = tuple(file for file, _ in entries)
        self._strengths = tuple(float(strength) for _, strength in entries)
        self._pairs: dict[tuple[str, AdapterLayout], tuple[torch.Tensor, ...]] = {}

    def changes(self, part: str) -> bool:
        """Whether one of the model's parts becomes another; if not, the plan without LoRAs runs it."""
        return any(strength and pairs for pairs, strength in zip(self._parts(part), self._strengths, strict=True))

    def with_entries(self, entries: Entries) -> LoraStack:
        """Another stack. Its low-rank pairs are the same tensors where its files are these, in this order."""
        other = LoraStack(entries)
        if other._files == self._files:
            other._pairs = self._pairs
        return other

    def layout_for(
        self, part: str, module: torch.nn.Module, at_least: AdapterLayout | None = None
    ) -> AdapterLayout | None:
        """The layout of one of the model's parts that this stack fits, at least `at_least`.

        None where nothing changes the part. LoRAs of strength 0 have their place in it too, for a strength to come.
        """
        return layout_for(module, self._parts(part), at_least) if self.changes(part) else None

    def adapter_tensors(self, part: str, module: torch.nn.Module, layout: AdapterLayout) -> tuple[torch.Tensor, ...]:
        """What an adapted module takes after its own inputs, f32 on the CPU: strengths [rank], then each layer's pair.

        Each LoRA has its own slots among the rank's, the same in all layers, and its strength stands in each of them.
        Slots that a layer doesn't use are 0. Raises `ValueError` where the layout doesn't hold the stack.
        """
        strengths = torch.zeros(layout.rank)
        for (start, pairs), strength in zip(self._slots(part), self._strengths, strict=True):
            end = start + rank_of(pairs)
            if end > layout.rank or not pairs.keys() <= set(layout.layers):
                raise ValueError(f"a layout of rank {layout.rank} doesn't hold this stack's {part}")
            strengths[start:end] = strength
        key = part, layout
        if key not in self._pairs:
            self._pairs[key] = tuple(self._padded(part, module, layout))
        return strengths, *self._pairs[key]

    def _padded(self, part: str, module: torch.nn.Module, layout: AdapterLayout) -> Iterator[torch.Tensor]:
        slots = list(self._slots(part))
        for layer, (down_shape, up_shape) in zip(layout.layers, adapter_shapes(module, layout), strict=True):
            down, up = torch.zeros(down_shape), torch.zeros(up_shape)
            for start, pairs in slots:
                if (pair := pairs.get(layer)) is not None:
                    down[start : start + pair.rank] = pair.down
                    torch.mul(pair.up, pair.scale, out=up[:, start : start + pair.rank])
            yield down
            yield up

    def _parts(self, part: str) -> list[Mapping[str, LowRankPair]]:
        return [file.part(part) for file in self._files]

    def _slots(self, part: str) -> Iterator[tuple[int, Mapping[str, LowRankPair]]]:
        """Each LoRA's first slot, and its pairs."""
        start = 0
        for pairs in self._parts(part):
            yield start, pairs
            start += rank_of(pairs)
