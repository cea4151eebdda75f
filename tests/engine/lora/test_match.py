"""A LoRA is fitted to the model that is loaded, or refused with both families named."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import ModelRefused
from tests.engine.lora import written
from tests.engine.lora.written import random_pairs, save

LAYER = "down_blocks.0.attentions.0.transformer_blocks.0.attn2.to_k"
WIDTHS = {"SD 1.x": 768, "SD 2.x": 1024, "SDXL": 2048}


def a_unet(width: int) -> Any:
    """What is looked at of a UNet: one layer that takes prompt embeddings, and the config."""
    import torch

    class Unet(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = SimpleNamespace(cross_attention_dim=width)
            place: torch.nn.Module = self
            *path, last = LAYER.split(".")
            for name in path:
                place.add_module(name, torch.nn.Module())
                place = place.get_submodule(name)
            place.add_module(last, torch.nn.Linear(width, 4))
            self.add_module("proj", torch.nn.Conv2d(4, 6, 1))

    return Unet()


def a_lora(path: Path, width: int) -> Any:
    from engine.lora.read import read_lora

    return read_lora(save(path, written.kohya(random_pairs(a_unet(width), [LAYER], 2))))


pytestmark = pytest.mark.usefixtures("torch_imported")


@pytest.mark.parametrize("mine", WIDTHS)
@pytest.mark.parametrize("other", WIDTHS)
def test_another_family_is_refused_with_both_named(tmp_path: Path, mine: str, other: str) -> None:
    from engine.lora.match import match

    lora = a_lora(tmp_path / "red.safetensors", WIDTHS[other])
    assert lora.family == other
    modules = {"unet": a_unet(WIDTHS[mine])}
    if mine == other:
        assert match(lora, modules, "Mine").unet.keys() == {LAYER}
        return
    with pytest.raises(ModelRefused, match=rf"red\.safetensors is a LoRA for {other}; Mine is {mine}"):
        match(lora, modules, "Mine")


def test_a_model_of_no_known_family_refuses_a_lora_of_one(tmp_path: Path, modules: dict[str, Any]) -> None:
    from engine.lora.match import match

    with pytest.raises(ModelRefused, match=r"is a LoRA for SD 1\.x; Tiny can't use it"):
        match(a_lora(tmp_path / "a.safetensors", 768), modules, "Tiny")


def test_another_model_of_the_family_is_refused(tmp_path: Path) -> None:
    from engine.lora.match import match

    modules = {"unet": a_unet(768)}
    modules["unet"].get_submodule(LAYER).out_features = 5
    with pytest.raises(ModelRefused, match=r"another model of the family SD 1\.x"):
        match(a_lora(tmp_path / "a.safetensors", 768), modules, "Mine")


@pytest.mark.parametrize(
    "name",
    [
        "transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight",
        "lora_unet_double_blocks_0_img_attn_qkv.lora_down.weight",
        "diffusion_model.joint_blocks.0.x_block.attn.qkv.lora_up.weight",
        "lora_transformer_single_transformer_blocks_0_attn_to_k.lora_down.weight",
    ],
)
def test_a_lora_for_a_transformer_is_refused_with_both_named(tmp_path: Path, name: str) -> None:
    import torch

    from engine.lora.match import match
    from engine.lora.read import read_lora

    lora = read_lora(save(tmp_path / "a.safetensors", {name: torch.ones(2, 2)}))
    with pytest.raises(ModelRefused, match=r"is a LoRA for Flux, SD 3 or .*; Mine is SDXL"):
        match(lora, {"unet": a_unet(2048)}, "Mine")


def test_a_second_text_encoder_means_sdxl(tmp_path: Path) -> None:
    import torch

    from engine.lora.read import read_lora

    name = "lora_te2_text_model_encoder_layers_0_self_attn_q_proj"
    tensors = {f"{name}.lora_down.weight": torch.ones(1, 1280), f"{name}.lora_up.weight": torch.ones(1280, 1)}
    lora = read_lora(save(tmp_path / "a.safetensors", tensors))
    assert lora.family == "SDXL"
    assert lora.text_encoder_2.keys() == {"text_model.encoder.layers.0.self_attn.q_proj"}


def test_a_lora_whose_layers_are_all_unknown_is_refused(tmp_path: Path) -> None:
    import torch

    from engine.lora.match import match
    from engine.lora.read import read_lora

    tensors = {"unet.elsewhere.lora_A.weight": torch.ones(1, 4), "unet.elsewhere.lora_B.weight": torch.ones(4, 1)}
    lora = read_lora(save(tmp_path / "a.safetensors", tensors))
    with pytest.raises(ModelRefused, match="None of its layers"):
        match(lora, {"unet": a_unet(768)}, "Mine")


def test_a_text_encoder_that_fits_does_not_excuse_a_unet_that_does_not(tmp_path: Path, modules: dict[str, Any]) -> None:
    import torch

    from engine.lora.layout import attention_layers
    from engine.lora.match import match
    from engine.lora.read import read_lora

    text = random_pairs(modules["text_encoder"], attention_layers(modules["text_encoder"]), 2)
    tensors = written.peft({}, text) | {
        "unet.elsewhere.lora_A.weight": torch.ones(1, 4),
        "unet.elsewhere.lora_B.weight": torch.ones(4, 1),
    }
    with pytest.raises(ModelRefused, match="None of its UNet's layers"):
        match(read_lora(save(tmp_path / "a.safetensors", tensors)), modules, "Tiny")


def test_single_unknown_layers_are_named_in_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import torch

    from engine.lora.match import match
    from engine.lora.read import read_lora

    tensors = written.peft(random_pairs(a_unet(768), [LAYER], 2))
    for layer in ("elsewhere", "nowhere"):
        tensors |= {f"unet.{layer}.lora_A.weight": torch.ones(1, 4), f"unet.{layer}.lora_B.weight": torch.ones(4, 1)}
    path = save(tmp_path / "a.safetensors", tensors)
    lora = match(read_lora(path), {"unet": a_unet(768)}, "Mine")
    assert lora.unet.keys() == {LAYER}
    lines = [record.getMessage() for record in caplog.records if record.name == "engine.lora.match"]
    assert lines == [f"{path}: 2 layers aren't in Mine: unet.elsewhere, unet.nowhere"]


def test_a_linear_layer_and_a_1x1_convolution_are_the_same_to_a_pair(tmp_path: Path) -> None:
    import torch

    from engine.lora.match import match
    from engine.lora.read import read_lora

    tensors = {
        "unet.proj.lora_A.weight": torch.ones(2, 4),
        "unet.proj.lora_B.weight": torch.ones(6, 2),
        f"unet.{LAYER}.lora_A.weight": torch.ones(2, 768, 1, 1),
        f"unet.{LAYER}.lora_B.weight": torch.ones(4, 2, 1, 1),
    }
    lora = match(read_lora(save(tmp_path / "a.safetensors", tensors)), {"unet": a_unet(768)}, "Mine")
    assert {layer: tuple(pair.down.shape) for layer, pair in lora.unet.items()} == {
        "proj": (2, 4, 1, 1),
        LAYER: (2, 768),
    }
