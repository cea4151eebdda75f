from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from app.settings.settings import PreviewInterval, Settings
from app.settings.store import SettingsStore
from engine.request import Switch, Weights


def test_a_change_is_told_and_kept(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    store, told = SettingsStore(path), []
    store.current_changed.connect(told.append)
    store.change(vae_tiling=Switch.ON)
    store.close()
    assert told == [Settings(vae_tiling=Switch.ON)]
    assert SettingsStore(path).current.vae_tiling is Switch.ON


def test_a_change_that_changes_nothing_is_not_told(tmp_path: Path) -> None:
    store, told = SettingsStore(tmp_path / "settings.json"), []
    store.current_changed.connect(told.append)
    store.change(previews=True)
    assert not told
    assert not store.current.model_fields_set


def test_a_wrong_value_is_refused_and_changes_nothing(tmp_path: Path) -> None:
    store = SettingsStore(tmp_path / "settings.json")
    with pytest.raises(ValidationError):
        store.change(theme="pink")
    assert store.current == Settings()


def test_the_engine_gets_its_part() -> None:
    settings = Settings(
        preview_interval=PreviewInterval.RARE, previews=False, vae_slicing=Switch.OFF, weights=Weights.HALF
    )
    for_engine = settings.for_engine(Path("/pictures"), Path("/plans"))
    assert for_engine.preview_interval == 2
    assert not for_engine.previews
    assert for_engine.vae_slicing is Switch.OFF
    assert for_engine.weights is Weights.HALF
    assert for_engine.output_folder == Path("/pictures")
    assert settings.model_copy(update={"output_folder": Path("/mine")}).for_engine(
        Path("/pictures"), Path("/plans")
    ).output_folder == Path("/mine")
