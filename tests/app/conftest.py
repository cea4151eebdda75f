"""Fixtures for the front end: everything the program would write goes into the test's own folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtWidgets import QApplication

from app.settings.settings import Theme
from app.studio.form import Form
from app.studio.studio import Studio
from app.style.theme import Appearance
from engine.models.description import ModelDescription, describe
from tests.app.fake_engine import FakeEngine


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_HOME", str(tmp_path / "home"))


@pytest.fixture(autouse=True)
def closed_widgets_are_gone() -> Iterator[None]:
    """Qt deletes a closed widget in its own loop, which no test runs; the next test would dress it again."""
    yield
    if QCoreApplication.instance() is not None:
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


@pytest.fixture(scope="session")
def qapp_args() -> list[str]:
    return ["safelight", "-style", "fusion"]


@pytest.fixture(scope="session")
def starter() -> ModelDescription:
    return describe("starter")


@pytest.fixture
def draw_seed() -> Callable[[], int]:
    """Seeds 100, 101, …"""
    numbers = iter(range(100, 1000))
    return lambda: next(numbers)


@pytest.fixture
def form(starter: ModelDescription, draw_seed: Callable[[], int]) -> Form:
    return Form(starter, draw_seed)


@pytest.fixture
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture
async def studio(engine: FakeEngine, form: Form) -> Studio:
    return Studio(engine, form)  # type: ignore[arg-type]


@pytest.fixture
def appearance(qapp: QApplication) -> Iterator[Appearance]:
    made = Appearance(qapp)
    made.use(Theme.DARK)
    yield made
    made.deleteLater()
