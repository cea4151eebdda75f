"""Layouts are few, so that LoRAs take each other's place in a plan, and never grow without need."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

FIRST = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.to_q"


def pairs(module: Any, layers: tuple[str, ...], rank: int) -> Any:
    from engine.lora.lora_file import LowRankPair
    from tests.engine.lora.written import random_pairs

    return {
        layer: LowRankPair(down, up, alpha / rank)
        for layer, (down, up, alpha) in random_pairs(module, layers, rank).items()
    }


def test_the_attention_layers_of_a_unet_are_those_in_its_transformer_blocks(unet: Any) -> None:
    from engine.lora.layout import all_layers, attention_layers

    layers = attention_layers(unet)
    kinds = {layer.partition(".transformer_blocks.0.")[2] or layer.rpartition(".")[2] for layer in layers}
    attention = {f"{a}.{p}" for a in ("attn1", "attn2") for p in ("to_q", "to_k", "to_v", "to_out.0")}
    assert kinds == attention | {"proj_in", "proj_out", "ff.net.0.proj", "ff.net.2"}
    rest = set(all_layers(unet)) - set(layers)
    assert {"conv_in", "conv_out", "time_embedding.linear_1", "down_blocks.0.resnets.0.conv1"} <= rest
    assert not [layer for layer in rest if "attentions" in layer]


def test_the_attention_layers_of_a_text_encoder_are_those_of_its_repeated_layers(text_encoder: Any) -> None:
    from engine.lora.layout import attention_layers

    layers = attention_layers(text_encoder)
    assert {layer.rpartition(".")[2] for layer in layers} == {"q_proj", "k_proj", "v_proj", "out_proj", "fc1", "fc2"}
    assert len(layers) == 2 * 6


@settings(deadline=None)
@given(st.integers(1, 3000))
def test_ranks_are_padded_to_the_next_power_of_two_from_eight(torch_imported: None, rank: int) -> None:
    from engine.lora.layout import padded

    assert padded(rank) >= max(rank, 8)
    assert padded(rank).bit_count() == 1
    assert padded(rank) == 8 or padded(rank) < 2 * rank


def test_a_layout_survives_pickling_and_can_be_a_key(torch_imported: None) -> None:
    from engine.lora.layout import AdapterLayout

    layout = AdapterLayout(("a", "b.0"), 16)
    assert pickle.loads(pickle.dumps(layout)) == layout
    assert {layout: 1}[AdapterLayout(("a", "b.0"), 16)] == 1


def test_the_smallest_layout_holds_the_stack(unet: Any) -> None:
    from engine.lora.layout import AdapterLayout, all_layers, attention_layers, layout_for

    few, many = pairs(unet, (FIRST,), 5), pairs(unet, ("conv_in", FIRST), 4)
    assert layout_for(unet, [few]) == AdapterLayout(attention_layers(unet), 8)
    assert layout_for(unet, [few, few]) == AdapterLayout(attention_layers(unet), 16)
    assert layout_for(unet, [few, many]) == AdapterLayout(all_layers(unet), 16)
    with pytest.raises(ValueError, match="nowhere"):
        layout_for(unet, [{"nowhere": few[FIRST]}])


@settings(deadline=None)
@given(ranks=st.lists(st.integers(1, 40), max_size=3), before=st.sampled_from([8, 16, 64]), whole=st.booleans())
def test_a_layout_that_is_there_stays_where_the_stack_fits_it(
    unet: Any, ranks: list[int], before: int, whole: bool
) -> None:
    from engine.lora.layout import AdapterLayout, all_layers, attention_layers, layout_for

    there = AdapterLayout(all_layers(unet) if whole else attention_layers(unet), before)
    stack = [pairs(unet, (FIRST,), rank) for rank in ranks]
    layout = layout_for(unet, stack, there)
    assert (layout == there) == (sum(ranks) <= before)
    assert layout.rank >= sum(ranks)
    assert layout_for(unet, stack, layout) == layout
