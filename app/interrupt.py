"""Ctrl-C in the terminal closes the window."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable
from types import FrameType

from PySide6.QtCore import QObject, QSocketNotifier


class Interrupt(QObject):
    """Calls `function` on the Qt loop when SIGINT or SIGTERM arrives.

    Python runs its signal handlers between bytecodes, and there are none while Qt sleeps: the wake-up socket rouses
    the loop. Use it on the main thread; `restore` puts back what was there.
    """

    def __init__(self, function: Callable[[], object], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._function = function
        self._read, self._write = socket.socketpair()
        self._read.setblocking(False)
        self._write.setblocking(False)
        self._notifier = QSocketNotifier(self._read.fileno(), QSocketNotifier.Type.Read, self)
        self._notifier.activated.connect(self._drain)
        self._old_fd = signal.set_wakeup_fd(self._write.fileno(), warn_on_full_buffer=False)
        self._old = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore(self) -> None:
        for number, handler in self._old.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._old_fd)
        self._notifier.setEnabled(False)
        self._read.close()
        self._write.close()

    def _drain(self) -> None:
        try:
            self._read.recv(4096)
        except BlockingIOError:
            return

    def _on_signal(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._function()
