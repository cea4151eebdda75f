from __future__ import annotations

import os
from pathlib import Path

import pytest

from app import folders


def test_one_variable_puts_every_folder_under_one_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_HOME", str(tmp_path))
    places = [
        folders.config(), folders.data(), folders.cache(), folders.logs(), folders.plans(), folders.pictures(),
    ]  # fmt: skip
    assert all(place.is_relative_to(tmp_path) for place in places)
    assert len(set(places)) == len(places)


def test_pictures_go_where_people_look_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAFELIGHT_HOME")
    assert folders.pictures().name == "Safelight"


def test_libraries_are_offline_silent_and_inside_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"SAFELIGHT_HOME": str(tmp_path), "HF_HOME": "/elsewhere"})
    folders.prepare_environment()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert os.environ["DO_NOT_TRACK"] == "1"
    for name in ("HF_HOME", "TORCH_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        assert Path(os.environ[name]).is_relative_to(folders.cache())


def test_a_new_account_gets_its_folder_of_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAFELIGHT_HOME", str(tmp_path / "never" / "seen"))
    folders.make_pictures()
    assert folders.pictures().is_dir()


def test_a_folder_of_pictures_that_cannot_be_made_is_no_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SAFELIGHT_HOME", str(tmp_path / "file"))
    folders.make_pictures()
    assert not folders.pictures().exists()
