"""Plans on disk: whole or not there, checked before they are used, bounded, shared by two programs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.cancellation import CancellationToken
from engine.errors import OperationCancelled
from engine.plans.store import ABANDONED_SECONDS, FILES, PlanStore, sha256

KEY = "0123abcd"
ROOT = Path(__file__).resolve().parents[3]


def model(content: bytes = b"weights") -> Callable[[Path], None]:
    def write(target: Path) -> None:
        target.write_bytes(b"<net/>")
        target.with_suffix(".bin").write_bytes(content)

    return write


def entries(folder: Path) -> list[str]:
    """Everything in the store but the file that programs lock."""
    return sorted(entry.name for entry in folder.iterdir() if entry.name != ".lock")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "plans"


@pytest.fixture
def store(folder: Path) -> PlanStore:
    return PlanStore(folder)


def test_what_was_added_is_found(store: PlanStore, folder: Path) -> None:
    assert store.find(KEY) is None
    path = store.add(KEY, model())
    assert path == store.find(KEY) == folder / KEY / "model.xml"
    assert path.with_suffix(".bin").read_bytes() == b"weights"
    assert store.find("another") is None
    assert entries(folder) == [KEY]


def test_a_new_store_finds_what_an_old_one_added(store: PlanStore, folder: Path) -> None:
    assert PlanStore(folder).find(KEY) is None
    store.add(KEY, model())
    assert PlanStore(folder).find(KEY) is not None


def test_the_sum_is_sha256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    assert sha256(tmp_path / "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"


# Entries that can't be trusted


def cut(entry: Path) -> None:
    os.truncate(entry / "model.bin", 3)


def lose(name: str) -> Callable[[Path], None]:
    return lambda entry: (entry / name).unlink()


def flip_a_byte(name: str) -> Callable[[Path], None]:
    def flip(entry: Path) -> None:
        content = bytearray((entry / name).read_bytes())
        content[len(content) // 2] ^= 1
        (entry / name).write_bytes(content)

    return flip


def manifest(content: str | bytes) -> Callable[[Path], None]:
    raw = content if isinstance(content, bytes) else content.encode()

    def write(entry: Path) -> None:
        (entry / "manifest.json").write_bytes(raw)

    return write


def become_a_file(entry: Path) -> None:
    shutil.rmtree(entry)
    entry.write_text("not a folder", encoding="utf-8")


def become_a_dangling_link(entry: Path) -> None:
    shutil.rmtree(entry)
    entry.symlink_to(entry.parent / "nowhere")


def hold_a_folder_for_a_file(entry: Path) -> None:
    (entry / "model.bin").unlink()
    (entry / "model.bin").mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        *(lose(name) for name in (*FILES, "manifest.json")),
        *(flip_a_byte(name) for name in (*FILES, "manifest.json")),
        manifest(""),
        manifest("{}"),
        manifest("[]"),
        manifest("null"),
        manifest('{"sha256": {"model.xml": 1}}'),
        manifest('{"sha256": ["model.xml"]}'),
        manifest(b"\xff\xfe"),
        manifest("[" * 200_000),
        become_a_file,
        become_a_dangling_link,
        hold_a_folder_for_a_file,
    ],
)
def test_a_damaged_entry_is_neither_found_nor_in_the_way(
    store: PlanStore, folder: Path, damage: Callable[[Path], None]
) -> None:
    store.add(KEY, model(b"old weights"))
    damage(folder / KEY)
    assert store.find(KEY) is None
    assert list(folder.iterdir()) == []
    damage_again = store.add(KEY, model(b"old weights")).parent
    damage(damage_again)
    path = store.add(KEY, model(b"new weights"))
    assert path.with_suffix(".bin").read_bytes() == b"new weights"
    assert store.find(KEY) == path


def test_a_bad_entry_that_can_not_be_removed_is_still_not_trusted(
    store: PlanStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.add(KEY, model())
    cut(folder / KEY)
    monkeypatch.setattr(PlanStore, "_remove", lambda *_: None)
    with pytest.raises(OSError, match="not empty"):
        store.add(KEY, model())
    assert store.find(KEY) is None


def test_a_link_to_elsewhere_is_forgotten_and_elsewhere_left_alone(
    store: PlanStore, folder: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").touch()
    folder.mkdir()
    (folder / KEY).symlink_to(elsewhere)
    assert store.find(KEY) is None
    assert (elsewhere / "precious").exists()
    assert not (folder / KEY).is_symlink()


def test_a_plan_folder_that_can_not_be_touched_is_still_read(store: PlanStore, monkeypatch: pytest.MonkeyPatch) -> None:
    path = store.add(KEY, model())

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "utime", refuse)
    assert store.find(KEY) == path


# Writing


def test_a_writer_that_fails_leaves_nothing(store: PlanStore, folder: Path) -> None:
    def write(target: Path) -> None:
        target.write_bytes(b"half")
        raise KeyError("no such operator")

    with pytest.raises(KeyError, match="no such operator"):
        store.add(KEY, write)
    assert store.find(KEY) is None
    assert list(folder.iterdir()) == []


def test_a_writer_that_forgets_a_file_leaves_nothing(store: PlanStore, folder: Path) -> None:
    with pytest.raises(OSError, match=r"model\.bin"):
        store.add(KEY, lambda target: target.touch())
    assert list(folder.iterdir()) == []


def test_a_checking_that_is_cancelled_says_so_and_keeps_the_entry(store: PlanStore) -> None:
    path = store.add(KEY, model())
    token = CancellationToken()
    token.cancel()
    with pytest.raises(OperationCancelled):
        store.find(KEY, token)
    assert store.find(KEY) == path


ADDING = """
import sys
from pathlib import Path
from engine.plans.store import PlanStore

def write(target):
    target.write_bytes(b"<net/>")
    target.with_suffix(".bin").write_bytes(b"w" * 1_000_000)
    print("written", flush=True)
    sys.stdin.readline()

path = PlanStore(Path(sys.argv[1])).add("0123abcd", write)
assert path.read_bytes() == b"<net/>"
"""


def open_program(folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", ADDING, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )


def start_adding(folder: Path) -> subprocess.Popen[str]:
    """Another program in the middle of adding the entry: it has written, and waits for a line to go on."""
    program = open_program(folder)
    assert program.stdout is not None
    assert program.stdout.readline() == "written\n"
    return program


def test_of_two_programs_one_adds_and_the_other_takes_what_it_made(store: PlanStore, folder: Path) -> None:
    first = start_adding(folder)
    second = open_program(folder)
    assert store.find(KEY) is None
    first.communicate("go on\n")
    written, _ = second.communicate()
    assert written == ""
    assert first.returncode == second.returncode == 0
    assert store.find(KEY) is not None
    assert entries(folder) == [KEY]


def test_who_waits_for_another_program_can_be_cancelled(store: PlanStore, folder: Path) -> None:
    first = start_adding(folder)
    token = CancellationToken()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.add, "another", model(), token)
        assert not waiting.done()
        token.cancel()
        with pytest.raises(OperationCancelled):
            waiting.result()
    assert store.find("another") is None
    first.communicate("go on\n")
    assert first.returncode == 0


def test_a_program_killed_while_it_adds_leaves_nothing_to_find(store: PlanStore, folder: Path) -> None:
    program = start_adding(folder)
    program.kill()
    program.communicate()
    assert store.find(KEY) is None
    (left,) = map(folder.joinpath, entries(folder))
    store.add("another", model())
    assert left.exists()  # it may belong to a program that is still at work
    long_ago = left.stat().st_mtime - ABANDONED_SECONDS - 1
    os.utime(left, (long_ago, long_ago))
    store.add("a third", model())
    assert not left.exists()


# The bound


def age(folder: Path, *keys: str) -> None:
    """Make the entries old, the first the oldest."""
    for seconds, key in enumerate(keys):
        os.utime(folder / key, (1_000_000 + seconds, 1_000_000 + seconds))


def test_the_entries_unused_for_longest_go_first(folder: Path) -> None:
    store = PlanStore(folder, max_bytes=4500)
    for key in ("a", "b", "c"):
        store.add(key, model(bytes(1000)))
    age(folder, "a", "b", "c")
    assert store.find("a") is not None  # used now, so that b is the oldest
    store.add("d", model(bytes(1000)))
    assert entries(folder) == ["a", "c", "d"]


def test_an_entry_larger_than_the_bound_is_kept_alone(folder: Path) -> None:
    store = PlanStore(folder, max_bytes=100)
    store.add("a", model(bytes(1000)))
    path = store.add("b", model(bytes(1000)))
    assert entries(folder) == ["b"]
    assert store.find("b") == path


def test_what_is_not_an_entry_is_left_alone(folder: Path) -> None:
    store = PlanStore(folder, max_bytes=1)
    folder.mkdir()
    (folder / "notes.txt").touch()
    (folder / "a folder").mkdir()
    (folder / "a link").symlink_to("nowhere")
    store.add("a", model())
    store.add("b", model())
    assert entries(folder) == ["a folder", "a link", "b", "notes.txt"]
