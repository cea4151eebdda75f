"""When do the engine's threads and child processes really stand still? Seen from the operating system (Linux)."""

from __future__ import annotations

import os
import time
from pathlib import Path

from engine.engine import Engine

_SAMPLE_SECONDS = 0.001


def wait_until_idle(engine: Engine, watcher: int) -> None:
    """Return when the engine says it is idle and, in two samples in a row, none of its threads is running or runnable.

    Counted are the threads of this process but `watcher` (the thread that measures) and all of its child processes'.
    """
    still = 0
    while still < 2:
        still = still + 1 if engine.is_idle and not _any_running(watcher) else 0
        time.sleep(_SAMPLE_SECONDS)


def _any_running(watcher: int) -> bool:
    return any(_state(task) == "R" for task in _tasks() if int(task.name) != watcher)


def _tasks() -> list[Path]:
    own = Path("/proc/self/task")
    tasks = list(own.iterdir())
    for child in _children(own):
        try:
            tasks += (Path("/proc") / child / "task").iterdir()
        except OSError:
            continue
    return tasks


def _children(tasks: Path) -> set[str]:
    found: set[str] = set()
    for task in tasks.iterdir():
        try:
            found.update((task / "children").read_text().split())
        except OSError:
            continue
    return found


def _state(task: Path) -> str:
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "X"


def thread_number() -> int:
    """The operating system's number of the calling thread, for `wait_until_idle`."""
    import threading

    return threading.get_native_id() if os.name == "posix" else 0
