"""What brings the window sooner: begun before anything large is imported, ended once the window is shown."""

from __future__ import annotations

import builtins
import gc
from threading import Thread


def begin() -> None:
    """Let the garbage collector rest, and undo what importing PySide6 does to Python's `import`.

    PySide6 replaces `import` by one that reads the source of every module imported from then on, torch's thousands
    included, to see whether it uses `__feature__`, and keeps those sources: seconds, and 150 MB. Nothing here uses
    `__feature__`.
    """
    gc.disable()
    import PySide6.QtCore  # noqa: F401

    builtins.__import__ = getattr(builtins, "__orig_import__", builtins.__import__)


def import_beside() -> Thread:
    """Import what has nothing to do with Qt on a thread, in the time that Qt waits for the window system.

    Join the thread before anything else is imported: two threads that import the same modules could meet in a circle.
    """
    thread = Thread(target=_import_engine, name="import")
    thread.start()
    return thread


def _import_engine() -> None:
    import engine.engine  # noqa: F401


def end() -> None:
    """Collect garbage again, but not among what has been imported, which stays for good."""
    gc.freeze()
    gc.enable()
