"""The floors of the house: what may import what."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ENGINE = sorted((ROOT / "engine").rglob("*.py"))
APP = sorted((ROOT / "app").rglob("*.py"))
# models: a test drives them without a window, so they know no widget
MODELS = [
    "app/observable.py",
    "app/json_file.py",
    "app/throttle.py",
    "app/shortcuts.py",
    "app/folders.py",
    "app/logs.py",
    "app/controls/arithmetic.py",
    "app/settings/settings.py",
    "app/settings/store.py",
    "app/settings/remembered.py",
    "app/studio/form.py",
    "app/studio/progress.py",
    "app/studio/results.py",
    "app/studio/run.py",
    "app/studio/studio.py",
    "app/style/tokens.py",
    "app/style/motion.py",
]
# the engine's public face; everything else of it is its own business
FACE = {
    "engine.cancellation",
    "engine.engine",
    "engine.errors",
    "engine.events",
    "engine.jobs",
    "engine.request",
    "engine.validation",
    "engine.models.description",
    "engine.generation.samplers",
    "engine.pictures.files",
    "engine.pictures.metadata",
    "engine.plans",  # the command line hands child processes over to engine.plans.child
}


def imported(path: Path) -> set[str]:
    """The full names of the modules that a file imports, wherever in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            assert node.level == 0, f"{path} imports relatively"
            found.add(node.module)
    return found


def roots(path: Path) -> set[str]:
    return {name.split(".")[0] for name in imported(path)}


@pytest.mark.parametrize("path", ENGINE, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_engine_imports_neither_qt_nor_the_front_end(path: Path) -> None:
    assert not roots(path) & {"PySide6", "shiboken6", "qasync", "app", "tests"}


@pytest.mark.parametrize("path", APP, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_front_end_knows_only_the_public_face(path: Path) -> None:
    assert {name for name in imported(path) if name.split(".")[0] == "engine"} <= FACE


@pytest.mark.parametrize("path", APP, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_front_end_touches_no_tensor(path: Path) -> None:
    assert not roots(path) & {"torch", "diffusers", "transformers", "openvino", "numpy", "tests"}


@pytest.mark.parametrize("path", MODELS)
def test_models_know_no_widget(path: str) -> None:
    assert not imported(ROOT / path) & {"PySide6.QtWidgets", "PySide6.QtGui", "PySide6.QtSvg"}


# app/start.py runs the first loop, before there is any other
@pytest.mark.parametrize(
    "path",
    [path for path in [*ENGINE, *APP] if path != ROOT / "app" / "start.py"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_dialog_and_no_loop_is_executed_inside_another(path: Path) -> None:
    """A nested loop would run other tasks in the middle of the one that opened it."""
    calls = [
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    assert not {"exec", "exec_", "processEvents", "getSaveFileName", "getOpenFileName"} & set(calls)


def test_packaging_is_no_package() -> None:
    assert not (ROOT / "packaging" / "__init__.py").exists()
