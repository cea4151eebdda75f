from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from engine.cancellation import CancellationToken
from engine.errors import OperationCancelled
from engine.plans.file_lock import locked

HOLDING = """
import sys
from pathlib import Path
from engine.plans.file_lock import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def hold(path: Path) -> subprocess.Popen[str]:
    program = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=Path(__file__).resolve().parents[3],
    )  # fmt: skip
    assert program.stdout is not None
    assert program.stdout.readline() == "held\n"
    return program


def test_a_killed_holder_lets_go(tmp_path: Path) -> None:
    program = hold(tmp_path / "lock")
    got = Event()

    def take() -> None:
        with locked(tmp_path / "lock"):
            got.set()

    with ThreadPoolExecutor(1) as pool:
        taken = pool.submit(take)
        assert not got.wait(0.3)
        program.kill()
        program.communicate()
        taken.result(60)
    assert list(tmp_path.iterdir()) == []


def test_never_two_hold_it_at_once(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work(number: int) -> None:
        for _ in range(20):
            with locked(tmp_path / "lock"):
                inside.append(number)
                most.append(len(inside))
                inside.remove(number)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work, number) for number in range(4)]:
            done.result(120)
    assert most == [1] * 80


def test_the_lock_is_free_after_a_block_that_raised(tmp_path: Path) -> None:
    with pytest.raises(KeyError), locked(tmp_path / "lock"):
        raise KeyError
    with ThreadPoolExecutor(1) as pool, locked(tmp_path / "lock"):
        token = CancellationToken()
        waiting = pool.submit(lambda: locked(tmp_path / "lock", token).__enter__())
        token.cancel()
        with pytest.raises(OperationCancelled):
            waiting.result(60)


def test_a_place_where_no_file_can_be_made_needs_no_lock(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with locked(tmp_path / "file" / "lock"):
        assert not (tmp_path / "file" / "lock").exists()
