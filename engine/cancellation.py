"""Cancellation that is asked for, or listened to.

A `CancellationToken` is handed down every call that can take long. Code between operators asks `raise_if_cancelled`;
code that can be interrupted (an inference request, a child process) registers `on_cancel`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import ClassVar

from engine.errors import OperationCancelled

log = logging.getLogger(__name__)


class CancellationToken:
    """A one-way switch, safe from any thread. Cancelling twice is harmless; the first reason stays.

    `linked` makes children that are cancelled with their parent but can be cancelled alone.
    `CancellationToken.none` is a token that nobody can cancel.
    """

    none: ClassVar[CancellationToken]

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._reason: str | None = None
        self._callbacks: dict[int, Callable[[], None]] = {}
        self._next_key = 0

    @property
    def is_cancelled(self) -> bool:
        return self._cancelled

    @property
    def reason(self) -> str | None:
        return self._reason

    def cancel(self, reason: str | None = None) -> None:
        """Cancel, and run every registered callback once, in the order of registration, on this thread.

        A callback that raises is logged; the others still run.
        """
        with self._lock:
            if self._cancelled:
                return
            self._reason = reason  # before the switch: it is read without the lock
            self._cancelled = True
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
        for callback in callbacks:
            self._run(callback)

    def raise_if_cancelled(self) -> None:
        """Raises `OperationCancelled` once the token is cancelled."""
        if self._cancelled:
            raise OperationCancelled(self._reason)

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Run `callback` exactly once when the token is cancelled, at once if it already is.

        Returns a function that takes the registration back; calling it late or twice is harmless.
        """
        with self._lock:
            if not self._cancelled:
                key = self._next_key
                self._next_key += 1
                self._callbacks[key] = callback

                def unregister() -> None:
                    with self._lock:
                        self._callbacks.pop(key, None)

                return unregister
        self._run(callback)
        return lambda: None

    def linked(self) -> LinkedToken:
        """A child: cancelled with this token, with the same reason, or alone. Use it as a context manager."""
        return LinkedToken(self)

    @staticmethod
    def _run(callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            log.exception("a cancellation callback failed")


class LinkedToken(CancellationToken):
    """A token that its parent cancels too. `close` (or leaving the `with` block) unlinks it from the parent."""

    def __init__(self, parent: CancellationToken) -> None:
        super().__init__()
        self._unlink = parent.on_cancel(lambda: self.cancel(parent.reason))

    def close(self) -> None:
        self._unlink()

    def __enter__(self) -> LinkedToken:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _NoToken(CancellationToken):
    """Can't be cancelled, and keeps no callbacks."""

    def cancel(self, reason: str | None = None) -> None:  # noqa: ARG002
        raise RuntimeError("CancellationToken.none can't be cancelled")

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        return lambda: None


CancellationToken.none = _NoToken()
