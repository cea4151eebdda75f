"""A stack as tensors: a moved slider is one new vector, and another LoRA is other numbers in the same shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.lora.test_layout import FIRST, pairs


def a_file(module: Any, rank: int, layers: tuple[str, ...] | None = None, name: str = "a") -> Any:
    from engine.lora.layout import attention_layers
    from engine.lora.lora_file import LoraFile

    unet = pairs(module, attention_layers(module) if layers is None else layers, rank)
    return LoraFile(Path(f"{name}.safetensors"), "another model", unet, {})


def stacked(entries: list[tuple[Any, float]]) -> Any:
    from engine.lora.stack import LoraStack

    return LoraStack(entries)


def test_a_strength_changes_the_first_tensor_alone(unet: Any) -> None:
    import torch

    one, two = a_file(unet, 3), a_file(unet, 2, (FIRST,))
    stack = stacked([(one, 0.5), (two, 1.0)])
    layout = stack.layout_for("unet", unet)
    before = stack.adapter_tensors("unet", unet, layout)
    after = stack.with_entries([(one, 0.5), (two, -2.0)]).adapter_tensors("unet", unet, layout)
    assert torch.equal(before[0], torch.tensor([0.5] * 3 + [1.0] * 2 + [0.0] * 3))
    assert torch.equal(after[0], torch.tensor([0.5] * 3 + [-2.0] * 2 + [0.0] * 3))
    assert len(after) == 1 + 2 * len(layout.layers)
    assert all(new is old for new, old in zip(after[1:], before[1:], strict=True))


def test_the_pairs_stand_in_their_slots_with_alpha_in_up(unet: Any) -> None:
    import torch

    one, two = a_file(unet, 3), a_file(unet, 2, (FIRST,))
    stack = stacked([(one, 0.5), (two, 1.0)])
    layout = stack.layout_for("unet", unet)
    tensors = stack.adapter_tensors("unet", unet, layout)
    for layer, down, up in zip(layout.layers, tensors[1::2], tensors[2::2], strict=True):
        first = one.unet[layer]
        assert torch.equal(down[:3], first.down)
        assert torch.equal(up[:, :3], first.up * first.scale)
        if layer == FIRST:
            second = two.unet[layer]
            assert torch.equal(down[3:5], second.down)
            assert torch.equal(up[:, 3:5], second.up * second.scale)
        rest = 5 if layer == FIRST else 3
        assert not down[rest:].any()
        assert not up[:, rest:].any()


def test_another_lora_of_the_same_or_a_lower_rank_fits_the_same_shapes(unet: Any) -> None:
    stack = stacked([(a_file(unet, 8), 1.0)])
    layout = stack.layout_for("unet", unet)
    shapes = [x.shape for x in stack.adapter_tensors("unet", unet, layout)]
    for other in (a_file(unet, 8, name="b"), a_file(unet, 1, (FIRST,), "c")):
        swapped = stack.with_entries([(other, 0.3)])
        assert swapped.layout_for("unet", unet, layout) is layout
        tensors = swapped.adapter_tensors("unet", unet, layout)
        assert [x.shape for x in tensors] == shapes
        assert tensors[1] is not stack.adapter_tensors("unet", unet, layout)[1]


def test_a_stack_without_loras_fits_any_layout_as_zeros(unet: Any) -> None:
    from engine.lora.layout import AdapterLayout

    empty = stacked([])
    layout = AdapterLayout((FIRST,), 8)
    assert empty.layout_for("unet", unet, layout) is None
    assert not any(x.any() for x in empty.adapter_tensors("unet", unet, layout))


def test_a_layout_that_is_too_small_is_refused(unet: Any) -> None:
    from engine.lora.layout import AdapterLayout

    stack = stacked([(a_file(unet, 9, (FIRST, "conv_in")), 1.0)])
    for layout in (AdapterLayout((FIRST, "conv_in"), 8), AdapterLayout((FIRST,), 16)):
        with pytest.raises(ValueError, match="doesn't hold"):
            stack.adapter_tensors("unet", unet, layout)


@settings(deadline=None)
@given(st.lists(st.sampled_from([0.0, -0.0, 0.4, -1.0]), max_size=4))
def test_a_stack_of_strengths_that_are_all_zero_needs_no_layout(unet: Any, strengths: list[float]) -> None:
    stack = stacked([(a_file(unet, 2), strength) for strength in strengths])
    assert stack.changes("unet") == any(strengths)
    assert (stack.layout_for("unet", unet) is None) == (not any(strengths))


def test_loras_of_strength_zero_keep_their_place_beside_others(unet: Any) -> None:
    one, two = a_file(unet, 5), a_file(unet, 6)
    layout = stacked([(one, 0.0), (two, 1.0)]).layout_for("unet", unet)
    assert layout == stacked([(one, 0.7), (two, 1.0)]).layout_for("unet", unet)


def test_a_part_that_no_lora_changes_has_no_layout(unet: Any, text_encoder: Any) -> None:
    assert stacked([(a_file(unet, 2), 1.0)]).layout_for("text_encoder", text_encoder) is None
