"""Calls that come faster than the screen can show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from PySide6.QtCore import QElapsedTimer, QObject, Qt, QTimer


class Throttle(QObject):
    """Runs `function` at most once per `interval` milliseconds; the newest arguments win.

    The first call after a pause runs at once, on the caller's stack. Arguments that came in between are passed on
    when the interval is over, so the last call is never lost, unless `drop` takes it back.
    """

    def __init__(self, function: Callable[..., None], interval: int, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._function = function
        self._interval = interval
        self._waiting: tuple[Any, ...] | None = None
        self._since = QElapsedTimer()
        self._timer = QTimer(self, singleShot=True, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._flush)

    def __call__(self, *arguments: Any) -> None:
        if self._timer.isActive():
            self._waiting = arguments
            return
        left = self._interval - self._since.elapsed() if self._since.isValid() else 0
        if left > 0:
            self._waiting = arguments
            self._timer.start(left)
            return
        self._run(arguments)

    def drop(self) -> None:
        """Forget a call that waits."""
        self._waiting = None
        self._timer.stop()

    def _flush(self) -> None:
        arguments, self._waiting = self._waiting, None
        if arguments is not None:
            self._run(arguments)

    def _run(self, arguments: tuple[Any, ...]) -> None:
        self._since.start()
        self._function(*arguments)
