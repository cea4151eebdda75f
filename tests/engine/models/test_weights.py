"""Weights that are given up come back as they were, from the file, and can be stopped half-way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelRefused, OperationCancelled

pytestmark = pytest.mark.usefixtures("torch_imported")


def module_and_weights(folder: Path) -> tuple[Any, Any]:
    from engine.models.load import load_module
    from engine.models.weights import PartWeights

    module = load_module(folder, "vae")
    return module, PartWeights(module, folder, "vae")


def answer(module: Any) -> Any:
    import torch

    with torch.inference_mode():
        return module.decode(torch.ones(1, 4, 6, 6), return_dict=False)[0]


def test_released_weights_take_no_memory_and_come_back_bit_for_bit(tiny_model: Path) -> None:
    import torch

    module, weights = module_and_weights(tiny_model)
    expected, layout = answer(module), [p.stride() for p in module.parameters()]
    weights.release()
    assert not weights.are_present
    assert all(parameter.is_meta for parameter in module.parameters())
    weights.restore(lambda: None)
    assert weights.are_present
    assert not any(parameter.requires_grad for parameter in module.parameters())
    assert [p.stride() for p in module.parameters()] == layout
    assert torch.equal(answer(module), expected)


def test_a_restore_that_is_stopped_goes_on_next_time(tiny_model: Path) -> None:
    import torch

    module, weights = module_and_weights(tiny_model)
    expected = answer(module)
    weights.release()
    left = iter(range(5))

    def checkpoint() -> None:
        if next(left, None) is None:
            raise OperationCancelled

    with pytest.raises(OperationCancelled):
        weights.restore(checkpoint)
    assert not weights.are_present
    weights.restore(lambda: None)
    assert torch.equal(answer(module), expected)


def test_a_file_that_has_gone_meanwhile_is_named(changed_model: Path) -> None:
    _, weights = module_and_weights(changed_model)
    weights.release()
    for file in (changed_model / "vae").glob("*.safetensors"):
        file.unlink()
    with pytest.raises(ModelRefused, match="vae"):
        weights.restore(lambda: None)
