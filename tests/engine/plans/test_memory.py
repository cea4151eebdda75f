"""A build says what it takes and isn't started where that isn't there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from engine.cancellation import CancellationToken
from engine.errors import PlanFailed
from engine.plans import memory
from engine.plans.builder import PlanBuilder, PlanSource
from engine.plans.memory import check_memory, weight_bytes
from engine.plans.plan import OPENVINO_STATIC, Signature


@pytest.mark.parametrize("part", ["text_encoder", "unet", "vae"])
def test_weights_are_counted_as_f32(tiny_model: Path, part: str) -> None:
    from engine.models.load import load_module

    assert weight_bytes(tiny_model, part) >= sum(4 * p.numel() for p in load_module(tiny_model, part).parameters())


def test_a_build_without_room_names_both_sizes(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=100_000_000))
    with pytest.raises(PlanFailed, match=r"noise predictor takes about 0\.\d GB of memory, and 0\.1 GB are free"):
        check_memory("noise predictor", tiny_model, "unet")
    builder = PlanBuilder(None)
    signature = Signature((((1, 4, 6, 6), "float32"),))
    future = builder.build(
        PlanSource(tiny_model, "VAE decoder", "vae"), OPENVINO_STATIC, signature, CancellationToken.none
    )
    with pytest.raises(PlanFailed, match="are free"):
        future.result(60)
    builder.close()


def test_a_build_with_room_is_let_through(tiny_model: Path) -> None:
    check_memory("VAE decoder", tiny_model, "vae")
