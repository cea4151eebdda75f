"""Loaded models for the tests of making pictures, eager only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.cancellation import CancellationToken
from engine.models.description import describe

if TYPE_CHECKING:
    from engine.models.model import Model


def load_eagerly(name: str) -> Iterator[Model]:
    import torch

    from engine.models.model import load
    from engine.plans.eager import EagerStream

    stream = EagerStream()
    model = asyncio.run(
        load(
            describe(name), stream, None, "cpu", torch.float32, lambda what, fraction: None, CancellationToken.none
        )
    )  # fmt: skip
    yield model
    model.close()
    stream.close()


@pytest.fixture(scope="module")
def starter(torch_imported: None) -> Iterator[Model]:
    yield from load_eagerly("starter")


@pytest.fixture(scope="module")
def tiny(tiny_model: Path) -> Iterator[Model]:
    yield from load_eagerly(str(tiny_model))
