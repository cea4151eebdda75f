"""The recipe's scripts are plain modules of a folder that is no package; they are reachable here alone."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

RECIPE = Path(__file__).resolve().parents[2] / "packaging" / "starter-model"
MODULES = sorted(path.stem for path in RECIPE.glob("*.py"))


@pytest.fixture(scope="session")
def recipe() -> Iterator[SimpleNamespace]:
    """Every module of the recipe by its name."""
    clashing = set(MODULES) & set(sys.modules)
    assert not clashing, f"{clashing} would be shadowed"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(RECIPE))
        yield SimpleNamespace(**{name: importlib.import_module(name) for name in MODULES})
    for name in MODULES:
        del sys.modules[name]
