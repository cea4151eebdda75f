"""Which plans a model keeps: small modules several, large ones one, since each holds the weights once more."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from engine.cancellation import CancellationToken
from engine.models.description import describe
from engine.plans.eager import EagerStream
from engine.plans.plan import EAGER, INDUCTOR, OPENVINO_DYNAMIC, OPENVINO_STATIC, Plan, Signature
from engine.request import Backend

NONE = CancellationToken.none


class Asked:
    """A builder that remembers what it is asked for and builds nothing."""

    def __init__(self) -> None:
        self.plans: list[tuple[str, str]] = []

    def build(self, source: Any, kind: str, signature: Signature, token: CancellationToken) -> Future[Plan]:
        self.plans.append((source.component, kind))
        return Future()


def loaded(folder: Path, stream: EagerStream, builder: Any) -> Any:
    import torch

    from engine.models.model import load

    return asyncio.run(
        load(describe(str(folder)), stream, builder, "cpu", torch.float32, lambda what, fraction: None, NONE)
    )


def asked_for(folder: Path, stream: EagerStream, backend: Backend) -> tuple[Any, Asked]:
    asked = Asked()
    model = loaded(folder, stream, asked)
    model.prepare(model.signatures(64, 64, 1, 2), backend)
    return model, asked


def test_a_small_model_asks_for_plans_of_this_size_and_then_of_every_size(
    tiny_model: Path, stream: EagerStream
) -> None:
    model, asked = asked_for(tiny_model, stream, Backend.AUTO)
    assert asked.plans == [
        ("text encoder", OPENVINO_STATIC),
        ("noise predictor", OPENVINO_STATIC),
        ("VAE decoder", OPENVINO_STATIC),
        ("noise predictor", OPENVINO_DYNAMIC),
        ("VAE decoder", OPENVINO_DYNAMIC),
    ]
    model.close()


def test_a_large_model_asks_for_plans_of_this_size_alone(
    tiny_model: Path, stream: EagerStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.models import model as module

    monkeypatch.setattr(module, "LARGE", 1000)
    model, asked = asked_for(tiny_model, stream, Backend.OPENVINO)
    assert model.kinds(Backend.OPENVINO) == (OPENVINO_STATIC,)
    assert {kind for _, kind in asked.plans} == {OPENVINO_STATIC}
    model.close()


def test_each_backend_has_its_own_kinds(tiny_model: Path, stream: EagerStream) -> None:
    model, asked = asked_for(tiny_model, stream, Backend.INDUCTOR)
    assert {kind for _, kind in asked.plans} == {INDUCTOR}
    assert model.kinds(Backend.EAGER) == ()
    assert model.ready_kind(model.signatures(64, 64, 1, 2), Backend.INDUCTOR) == EAGER
    model.close()


def test_without_a_builder_there_are_no_kinds(tiny_model: Path, stream: EagerStream) -> None:
    model = loaded(tiny_model, stream, None)
    assert model.kinds(Backend.AUTO) == ()
    model.close()
