from __future__ import annotations

import logging
from pathlib import Path

import pytest

from app.json_file import JsonFile
from app.settings.settings import Settings, Theme


def file_in(folder: Path) -> JsonFile[Settings]:
    return JsonFile(folder / "config" / "settings.json", Settings)


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    saved = Settings(theme=Theme.LIGHT, output_folder=Path("/somewhere/else"))
    file.save(saved)
    file.close()
    assert file_in(tmp_path).load() == saved


def test_the_newest_of_many_saves_wins(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    for at in range(50):
        file.save(Settings(output_folder=Path(f"/{at}")))
    file.close()
    assert file.load().output_folder == Path("/49")


def test_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.save(Settings())
    file.close()
    assert [path.name for path in file.path.parent.iterdir()] == ["settings.json"]


def test_a_missing_file_gives_the_defaults_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert file_in(tmp_path).load() == Settings()
    assert not caplog.records


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"theme": "pink"}', b"\xff\xfe\x00", b"[" * 100_000])
def test_a_damaged_file_gives_the_defaults_and_is_kept_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    file = file_in(tmp_path)
    file.path.parent.mkdir()
    file.path.write_bytes(content)
    with caplog.at_level(logging.WARNING):
        assert file.load() == Settings()
    assert file.damage is not None
    assert str(file.path) in file.damage
    assert "kept as settings.damaged-1.json" in file.damage
    assert [record.getMessage() for record in caplog.records] == [file.damage]
    file.save(Settings(theme=Theme.LIGHT))
    file.close()
    assert (file.path.parent / "settings.damaged-1.json").read_bytes() == content


def test_no_damaged_file_takes_the_place_of_another(tmp_path: Path) -> None:
    for content in ("first", "second"):
        file = file_in(tmp_path)
        file.path.parent.mkdir(exist_ok=True)
        file.path.write_text(content)
        file.load()
    kept = sorted(file.path.parent.glob("settings.damaged-*.json"))
    assert [path.read_text() for path in kept] == ["first", "second"]


def test_a_file_of_another_version_keeps_what_is_known(tmp_path: Path) -> None:
    file = file_in(tmp_path)
    file.path.parent.mkdir()
    file.path.write_text('{"theme": "light", "from_the_future": 1}')
    assert file.load().theme is Theme.LIGHT
    assert file.damage is None


def test_a_folder_that_cannot_be_written_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "config").write_text("a file where the folder should be")
    file = file_in(tmp_path)
    file.save(Settings())
    file.close()
    assert "could not be saved" in caplog.text
