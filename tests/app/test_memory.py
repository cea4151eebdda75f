from __future__ import annotations

import subprocess
import sys

from app import memory

HELD = 200_000_000
_CHILD = f"held = b'x' * {HELD}; print('ready', flush=True); input()"


def test_the_memory_of_children_counts_while_they_live() -> None:
    before = memory.used()
    with subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with_child = memory.used()
        child.communicate(b"\n")
    assert with_child - before > HELD
    assert memory.used() - before < HELD // 2


def test_what_is_free_is_less_than_the_machine_has() -> None:
    assert 0 < memory.free() < 1 << 50
