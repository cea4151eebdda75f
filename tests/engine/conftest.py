"""What the engine's tests share: a tiny model, its plans, and a folder of plans that lasts a whole session."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.importing import import_torch
from tests.engine import tiny_model as tiny
from tests.engine import tiny_sdxl as sdxl

if TYPE_CHECKING:
    from engine.plans.builder import PlanBuilder
    from engine.plans.eager import EagerStream


@pytest.fixture(scope="session")
def torch_imported() -> None:
    """torch as the engine imports it; seconds, once."""
    import_torch()


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory, torch_imported: None) -> Path:
    """A model folder with random weights, never to be changed; `changed_model` is for that."""
    return tiny.write(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="session")
def tiny_sdxl(tmp_path_factory: pytest.TempPathFactory, torch_imported: None) -> Path:
    """An SDXL model folder with random weights, never to be changed; `changed_sdxl` is for that."""
    return sdxl.write(tmp_path_factory.mktemp("models") / "tiny-sdxl")


@pytest.fixture
def changed_sdxl(tiny_sdxl: Path, tmp_path: Path) -> Path:
    """A copy of the tiny SDXL model that a test may damage."""
    return Path(shutil.copytree(tiny_sdxl, tmp_path / "tiny-sdxl"))


@pytest.fixture
def changed_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A copy of the tiny model that a test may damage."""
    return Path(shutil.copytree(tiny_model, tmp_path / "tiny"))


@pytest.fixture
def stream(torch_imported: None) -> Iterator[EagerStream]:
    from engine.plans.eager import EagerStream

    stream = EagerStream()
    yield stream
    stream.close()


@pytest.fixture(scope="session")
def tiny_builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlanBuilder]:
    """A builder whose plan folder holds the tiny model's converted modules once a test has asked for them."""
    from engine.plans.builder import PlanBuilder

    builder = PlanBuilder(tmp_path_factory.mktemp("tiny-plans"))
    yield builder
    builder.close()


@pytest.fixture(scope="session")
def starter_plans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One plan folder for every engine of a session that runs the starter, so that it is converted once."""
    return tmp_path_factory.mktemp("starter-plans")


@pytest.fixture
def in_thread() -> Iterator[Callable[[Callable[[], object]], object]]:
    """Start a function on a thread of its own and get its future; the thread is joined at the end of the test."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as executor:
        yield executor.submit
