"""Pictures are on the disk whole, under a name of their own, or not at all."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path, PureWindowsPath

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import PictureNotSaved
from engine.events import MadeWith, RgbImage
from engine.pictures import files
from engine.pictures.files import name_picture, save_picture, write_whole
from engine.pictures.metadata import read_settings
from engine.request import MAX_SEED, GenerationRequest

NOW = datetime(2026, 11, 30, 23, 15, 2)
REQUEST = GenerationRequest(prompt="a red apple, 3d style", seed=7)
IMAGE = RgbImage(width=64, height=64, pixels=bytes(64 * 64 * 3))
MADE_WITH = MadeWith(plan="eager", batch=2)
NAME = "2026-11-30_231502_seed7_a-red-apple-3d-style"


def save(folder: Path) -> Path:
    return save_picture(IMAGE, REQUEST, MADE_WITH, folder, NOW)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_picture_is_named_by_date_seed_and_first_words(tmp_path: Path) -> None:
    path = save(tmp_path)
    assert path == tmp_path / f"{NAME}.png"
    assert names(tmp_path) == [path.name]
    assert read_settings(path) == (REQUEST, MADE_WITH)


def test_a_taken_name_is_never_overwritten(tmp_path: Path) -> None:
    paths = [save(tmp_path) for _ in range(3)]
    assert [path.stem for path in paths] == [NAME, f"{NAME}-2", f"{NAME}-3"]


def test_the_folder_is_made_where_only_itself_is_missing(tmp_path: Path) -> None:
    assert save(tmp_path / "apples").parent == tmp_path / "apples"
    with pytest.raises(PictureNotSaved, match="doesn't exist"):
        save(tmp_path / "one" / "two")


@settings(deadline=None)
@given(
    prompt=st.text(max_size=300) | st.text(alphabet='a /\\:*?"<>|.\0\n-éあ𝒳', max_size=300),
    seed=st.integers(0, MAX_SEED),
)
def test_every_prompt_gives_a_name_that_every_system_takes(prompt: str, seed: int) -> None:
    name = name_picture(GenerationRequest(prompt=prompt, seed=seed), NOW) + ".png"
    assert len(name.encode()) <= 120
    assert not set(name) & set('/\\:*?"<>|')
    assert name.isprintable()
    assert PureWindowsPath(name).name == name
    assert not PureWindowsPath(name).is_reserved()
    assert name.startswith(f"2026-11-30_231502_seed{seed}")


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", ""),
        ("!?", ""),
        ("Ein grüner Käfer", "_ein-grüner-käfer"),
        ("赤いりんご、3D", "_赤いりんご-3d"),
        ("हिन्दी", "_हिन्दी"),
        ("word " * 100, "_" + "-".join(["word"] * 12)),
        ("x" * 500, "_" + "x" * 60),
    ],
)
def test_the_words_of_a_name(prompt: str, words: str) -> None:
    assert name_picture(GenerationRequest(prompt=prompt, seed=1), NOW) == f"2026-11-30_231502_seed1{words}"


def _save_many(folder: Path, start: Connection, links: bool) -> None:
    if not links:
        os.link = _no_links
    start.send("ready")
    start.recv()
    for _ in range(20):
        save(folder)


@pytest.mark.parametrize("links", [True, False], ids=["with links", "without links"])
def test_programs_saving_at_once_lose_nothing(tmp_path: Path, links: bool) -> None:
    context = multiprocessing.get_context("spawn")
    starts = [context.Pipe() for _ in range(3)]
    programs = [context.Process(target=_save_many, args=(tmp_path, theirs, links)) for _, theirs in starts]
    for program in programs:
        program.start()
    for ours, _ in starts:
        assert ours.recv() == "ready"
    for ours, _ in starts:
        ours.send("go")
    for program in programs:
        program.join()
    assert [program.exitcode for program in programs] == [0, 0, 0]
    assert len(names(tmp_path)) == 60
    assert all(read_settings(path)[0] == REQUEST for path in tmp_path.iterdir())


def _no_links(*_: object) -> None:
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def test_file_systems_without_links_keep_the_promises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "link", _no_links)
    assert [save(tmp_path).stem for _ in range(2)] == [NAME, f"{NAME}-2"]
    assert names(tmp_path) == [f"{NAME}-2.png", f"{NAME}.png"]


@pytest.mark.parametrize(
    ("number", "sentence"),
    [(errno.ENOSPC, "is full"), (errno.EDQUOT, "quota"), (errno.EROFS, "read-only"), (errno.EIO, "can't be written")],
)
def test_a_failing_disk_gives_a_sentence_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    def fail(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(PictureNotSaved, match=f"not saved: .*{sentence}.*\\.$"):
        save(tmp_path)
    with pytest.raises(PictureNotSaved, match=sentence):
        write_whole(tmp_path / "mine.png", b"data")
    assert names(tmp_path) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if sys.platform != "linux" or os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("only root may mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_disk_that_fills_up_gives_a_sentence_and_leaves_nothing(small_disk: Path) -> None:
    noise = RgbImage(width=256, height=256, pixels=os.urandom(256 * 256 * 3))
    with pytest.raises(PictureNotSaved, match="is full"):
        save_picture(noise, REQUEST, MADE_WITH, small_disk, NOW)
    assert names(small_disk) == []
    assert save(small_disk).exists()


def test_a_folder_that_isnt_one_gives_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(PictureNotSaved, match="isn't a folder"):
        save(tmp_path / "file")
    with pytest.raises(PictureNotSaved, match="isn't a folder"):
        save(tmp_path / "file" / "apples")


def test_a_folder_that_may_not_be_written_gives_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:  # root may write everywhere, so the system's answer is played
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(PictureNotSaved, match="you may not write"):
        save(tmp_path)


def test_write_whole_replaces_and_honours_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "mine.png"
    path.write_bytes(b"old")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"
    assert names(tmp_path) == ["mine.png"]
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_what_a_killed_program_left_is_cleared_but_not_what_is_being_written(tmp_path: Path) -> None:
    stale, fresh = tmp_path / ".safelight-0000.part", tmp_path / ".safelight-1111.part"
    for path in (stale, fresh):
        path.write_bytes(b"half")
    os.utime(stale, (0, 0))
    save(tmp_path)
    assert names(tmp_path) == [fresh.name, f"{NAME}.png"]


def _die_when(moment: str, folder: Path) -> None:
    """Save a picture, and be killed by the system's strongest signal at a moment of it."""
    original = getattr(os, moment)

    def die(*arguments: object, **named: object) -> object:
        os.kill(os.getpid(), signal.SIGKILL)
        return original(*arguments, **named)

    setattr(os, moment, die)
    save(folder)


@pytest.mark.parametrize("moment", ["fsync", "link", "unlink"])
def test_killed_while_saving_no_half_file_bears_a_final_name(tmp_path: Path, moment: str) -> None:
    program = multiprocessing.get_context("spawn").Process(target=_die_when, args=(moment, tmp_path))
    program.start()
    program.join()
    assert program.exitcode == -signal.SIGKILL
    finished = list(tmp_path.glob("*.png"))
    assert all(read_settings(path) == (REQUEST, MADE_WITH) for path in finished)
    assert {path.name for path in finished} <= {f"{NAME}.png"}
    assert bool(finished) == (moment == "unlink")
    for path in tmp_path.glob(f"{files.PREFIX}*"):
        os.utime(path, (0, 0))
    assert save(tmp_path).exists()
    assert not list(tmp_path.glob(f"{files.PREFIX}*"))
