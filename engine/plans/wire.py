"""Messages between the engine and its own child processes: pickled tuples over a pair of pipes.

Both ends are the same installation of the program and the pipes are private to the two processes, so pickle is safe
here; nothing read from a file ever comes this way.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

PROTOCOL = 5
ROOT = Path(__file__).resolve().parents[2]


class Wire:
    """One end of the connection. `send` may be called from any thread; `receive` from one."""

    def __init__(self, incoming: IO[bytes], outgoing: IO[bytes]) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._lock = threading.Lock()

    def send(self, *message: Any) -> None:
        """Raises `OSError` where the other end is gone."""
        data = pickle.dumps(message, protocol=PROTOCOL)
        try:
            with self._lock:
                self._outgoing.write(data)
                self._outgoing.flush()
        except ValueError as error:  # closed on this side, by `ChildProcess.kill`
            raise BrokenPipeError("the connection is closed") from error

    def receive(self) -> tuple[Any, ...]:
        """The next message. Raises `EOFError` where the other end is gone."""
        try:
            message = pickle.load(self._incoming)
        except (pickle.UnpicklingError, OSError, ValueError) as error:
            raise EOFError(str(error)) from error
        assert isinstance(message, tuple)
        return message


class ChildProcess:
    """A child of the program that serves one job, and dies with its parent: it exits when its pipe closes."""

    def __init__(self, job: str) -> None:
        """`job` is a command of `engine.plans.child`, such as "--plan-worker"."""
        flags = getattr(subprocess, "CREATE_NO_WINDOW", 0)
        self._process = subprocess.Popen(
            [*_interpreter(), job],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=_environment(),
            creationflags=flags,
            start_new_session=True,  # Ctrl-C in the terminal is the program's to answer, not its children's
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.wire = Wire(self._process.stdout, self._process.stdin)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process at once and reap it; harmless when it is gone already."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):
                    stream.close()


def _interpreter() -> list[str]:
    if getattr(sys, "frozen", False):
        return [sys.executable]
    # -P: a module of the working folder must not be taken for one of the standard library
    return [sys.executable, "-P", "-m", "engine.plans.child"]


def _environment() -> dict[str, str]:
    environment = os.environ.copy()
    environment["HF_HUB_OFFLINE"] = "1"
    if not getattr(sys, "frozen", False):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), environment.get("PYTHONPATH")]))
    return environment
