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


def test_a_home_is_made_with_the_folders_above_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "never" / "seen"
    monkeypatch.setenv("SAFELIGHT_HOME", str(home))
    assert folders.why_no_home() is None
    assert list(home.iterdir()) == []


@pytest.mark.parametrize("home", ["file", "file/beneath", "file/far/beneath", "with\0nul", "~no-such-user-here/home"])
def test_a_home_that_cannot_be_used_is_said_in_one_sentence(
    home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "environ", {"SAFELIGHT_HOME": home if home[0] == "~" else str(tmp_path / home)})
    reason = folders.why_no_home()
    assert reason is not None
    assert reason.startswith("SAFELIGHT_HOME can't be used: ")
    assert reason.endswith("Name another folder, or unset it.")


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc here")
def test_a_folder_where_nobody_can_write_is_told_by_trying() -> None:
    assert folders.why_unwritable(Path("/proc")) == "nothing can be written into /proc"


def test_no_home_is_asked_for_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SAFELIGHT_HOME")
    assert folders.why_no_home() is None
