"""Narrow weights: f16 in memory, f32 in every computation, whatever becomes of the call."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from engine.errors import OperationCancelled
from engine.models import narrow

pytestmark = pytest.mark.usefixtures("torch_imported")


@pytest.fixture(autouse=True)
def few_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(narrow, "_LEAST_ELEMENTS", 2048)


@pytest.fixture
def half_model(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny model with its weights in f16, as most files have them."""
    from safetensors.torch import load_file, save_file

    folder = Path(shutil.copytree(tiny_model, tmp_path / "half"))
    for file in folder.rglob("*.safetensors"):
        save_file({name: tensor.half() for name, tensor in load_file(file).items()}, file)
    return folder


def load(folder: Path, narrowly: bool = True) -> Any:
    from engine.models.load import load_module

    return load_module(folder, "unet", narrow=narrowly)


def answer(unet: Any) -> Any:
    import torch

    draw = torch.Generator().manual_seed(0)
    with torch.inference_mode():
        latents, prompt = torch.randn(2, 4, 8, 8, generator=draw), torch.randn(2, 7, 32, generator=draw)
        return unet(latents, torch.tensor(500.0), prompt, return_dict=False)[0]


def halves(unet: Any) -> int:
    import torch

    return sum(parameter.dtype == torch.float16 for parameter in unet.parameters())


def test_what_the_file_has_in_f16_is_computed_bit_for_bit_as_if_widened_on_loading(half_model: Path) -> None:
    import torch

    unet = load(half_model)
    before = halves(unet)
    assert before > 20
    assert torch.equal(answer(unet), answer(load(half_model, narrowly=False)))
    assert halves(unet) == before
    assert unet.dtype == torch.float32


def test_what_the_file_has_in_f32_is_rounded(tiny_model: Path) -> None:
    exact = answer(load(tiny_model, narrowly=False))
    apart = (answer(load(tiny_model)) - exact).abs().max() / exact.abs().max()
    assert 0 < apart < 2e-3


def test_a_call_that_is_broken_off_leaves_the_weights_narrow(half_model: Path) -> None:
    import torch

    unet = load(half_model)
    before, expected = halves(unet), answer(unet)

    def stop(*_: object) -> None:
        raise OperationCancelled

    for layer in (unet.conv_norm_out, unet.down_blocks[0].resnets[0].conv2, unet.mid_block.attentions[0].proj_in):
        hook = layer.register_forward_pre_hook(stop)
        with pytest.raises(OperationCancelled):
            answer(unet)
        hook.remove()
        assert halves(unet) == before
    assert torch.equal(answer(unet), expected)


def test_released_narrow_weights_come_back_narrow(half_model: Path) -> None:
    import torch

    from engine.models.weights import PartWeights

    unet = load(half_model)
    before, expected = halves(unet), answer(unet)
    weights = PartWeights(unet, half_model, "unet")
    weights.release()
    weights.restore(lambda: None)
    assert halves(unet) == before
    assert torch.equal(answer(unet), expected)


def test_a_weight_beyond_the_range_of_f16_stays_f32(changed_model: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    (file,) = (changed_model / "unet").glob("*.safetensors")
    tensors = load_file(file)
    name = "down_blocks.0.resnets.0.conv2.weight"
    tensors[name][0, 0, 0, 0] = 1e6
    save_file(tensors, file)
    unet = load(changed_model)
    assert unet.get_parameter(name).dtype == torch.float32
    assert unet.get_parameter(name).max() == 1e6
    assert answer(unet).isfinite().all()
