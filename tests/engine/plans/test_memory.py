"""A build says what it takes and isn't started where that isn't there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from engine.cancellation import CancellationToken
from engine.errors import PlanFailed
from engine.plans import memory
from engine.plans.builder import PlanBuilder, PlanSource
from engine.plans.memory import build_bytes, check_memory, weight_bytes
from engine.plans.plan import OPENVINO_STATIC, Signature
from engine.request import Weights


@pytest.mark.parametrize("part", ["text_encoder", "unet", "vae"])
def test_weights_are_counted_as_f32(tiny_model: Path, part: str) -> None:
    from engine.models.load import load_module

    assert weight_bytes(tiny_model, part) >= sum(4 * p.numel() for p in load_module(tiny_model, part).parameters())


def test_a_build_without_room_names_both_sizes(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100_000_000))
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


def test_reduced_weights_and_stored_plans_ask_for_less(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "weight_bytes", lambda folder, part: 3_440_000_000)  # the UNet of Stable Diffusion 1.5
    new = [build_bytes(tiny_model, "unet", weights) for weights in Weights]
    stored = [build_bytes(tiny_model, "unet", weights, stored=True) for weights in Weights]
    assert new[0] > new[1] > new[2]
    assert stored[0] >= stored[1] > stored[2]
    assert stored[0] < new[0]
    assert stored[2] < new[2]


def test_who_has_too_little_room_hears_of_smaller_weights(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=100_000_000))
    with pytest.raises(PlanFailed, match="smaller weights"):
        check_memory("noise predictor", tiny_model, "unet")
    with pytest.raises(PlanFailed) as refused:
        check_memory("noise predictor", tiny_model, "unet", Weights.INT8)
    assert "smaller weights" not in str(refused.value)


def test_a_stored_plan_is_built_where_there_is_no_room_to_convert(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = PlanBuilder(tmp_path)
    source, signature = PlanSource(tiny_model, "VAE decoder", "vae"), Signature((((1, 4, 6, 6), "float32"),))
    builder.build(source, OPENVINO_STATIC, signature, CancellationToken.none).result(300).close()
    between = (build_bytes(tiny_model, "vae") + build_bytes(tiny_model, "vae", stored=True)) // 2
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=between))
    plan = builder.build(source, OPENVINO_STATIC, signature, CancellationToken.none).result(300)
    assert plan.is_alive
    plan.close()
    other = PlanSource(tiny_model, "VAE encoder", "vae")
    with pytest.raises(PlanFailed, match="are free"):
        builder.build(other, OPENVINO_STATIC, signature, CancellationToken.none).result(300)
    builder.close()
