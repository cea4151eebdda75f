"""A lock that programs share by means of a file. The system lets go of it when its holder ends, however it ends."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from engine.cancellation import CancellationToken

_ASK_AGAIN = 0.1  # seconds; systems can't tell when another program's lock is free


@contextlib.contextmanager
def locked(path: Path, token: CancellationToken = CancellationToken.none) -> Iterator[None]:
    """Hold the lock on a file while the block runs; wait for it where another holds it. The file is gone afterwards.

    Where the file system knows no locks, or the file can't be made, the block runs without. Not reentrant. Raises
    `OperationCancelled` while it waits.
    """
    token.raise_if_cancelled()
    stopped = threading.Event()
    unregister = token.on_cancel(stopped.set)
    try:
        while (descriptor := _open(path)) is not None and not _holds(descriptor, path):
            os.close(descriptor)
            stopped.wait(_ASK_AGAIN)
            token.raise_if_cancelled()
    finally:
        unregister()
    try:
        yield
    finally:
        if descriptor is not None:
            with contextlib.suppress(OSError):  # Windows keeps a file that another program has open
                path.unlink()
            os.close(descriptor)  # which lets go of the lock


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None


def _holds(descriptor: int, path: Path) -> bool:
    """Try once to take the lock; a lock on a file that its last holder has just removed is worth nothing."""
    try:
        return _take(descriptor) and os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False


def _take(descriptor: int) -> bool:
    """Try once; True also where there are no locks to take."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the latter is Windows' word for it
        return False
    except OSError:
        return True
    return True
