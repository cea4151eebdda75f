"""The engine thread: one thread, one asyncio loop, owner of every tensor."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class EngineThread:
    """Runs an asyncio loop on a thread of its own until `close`."""

    def __init__(self, name: str = "safelight-engine") -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            self._end_tasks()
        finally:
            self._loop.close()

    def _end_tasks(self) -> None:
        """Cancel what still waits, so that its future is settled and nobody waits for it for ever."""
        tasks = asyncio.all_tasks(self._loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.wait(tasks))

    @property
    def is_current(self) -> bool:
        return threading.current_thread() is self._thread

    def start(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        """Run a coroutine on the engine's loop, from any thread. Raises `RuntimeError` once closed."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call a function on the engine's loop, soon, from any thread."""
        self._loop.call_soon_threadsafe(function, *arguments)

    def close(self, timeout: float) -> bool:
        """Stop the loop and join the thread; False where it was still busy after `timeout` seconds."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(timeout)
        return not self._thread.is_alive()
