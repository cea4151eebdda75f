"""The child process behind one compiled plan: has a compiler make a module, runs it, can be interrupted.

Messages in: ("load", compiler, …), ("run", call, arrays; None for an array that is as before), ("cancel", call).
Messages out: ("ready",) or ("refused", sentence) after load; ("done", call, array), ("cancelled", call) or
("failed", call, sentence) after run.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Any, Protocol

from engine.plans.wire import Wire


class CompiledModule(Protocol):
    """What a compiler made. `start` and `wait` are one call; `interrupt`, from another thread, may end it early."""

    def start(self, arrays: list[Any]) -> None: ...

    def wait(self) -> Any: ...

    def interrupt(self) -> None: ...


def serve(wire: Wire) -> None:
    worker = _Worker(wire)
    threading.Thread(target=worker.run_calls, name="inference", daemon=True).start()
    while True:
        try:
            message = wire.receive()
        except EOFError:
            return
        worker.handle(message)


def _compiled(compiler: str, arguments: tuple[Any, ...]) -> CompiledModule:
    if compiler == "openvino":
        from engine.plans.openvino_module import OpenVinoModule

        return OpenVinoModule(*arguments)
    from engine.plans.inductor_module import InductorModule

    return InductorModule(*arguments)


class _Worker:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._jobs: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._module: CompiledModule | None = None
        self._inputs: list[Any] = []
        self._running: int | None = None
        self._cancelled: set[int] = set()

    def handle(self, message: tuple[Any, ...]) -> None:
        if message[0] == "cancel":
            with self._lock:
                self._cancelled.add(message[1])
                if self._running == message[1] and self._module is not None:
                    self._module.interrupt()
        else:
            self._jobs.put(message)

    def run_calls(self) -> None:
        try:
            while True:
                message = self._jobs.get()
                if message[0] == "load":
                    self._load(message[1], message[2:])
                else:
                    self._run(*message[1:])
        except OSError:
            os._exit(1)  # the parent is gone

    def _load(self, compiler: str, arguments: tuple[Any, ...]) -> None:
        try:
            self._module = _compiled(compiler, arguments)
        except Exception as error:
            self._wire.send("refused", _sentence(error))
            return
        self._wire.send("ready")

    def _run(self, call: int, arrays: list[Any]) -> None:
        assert self._module is not None
        held = self._inputs if len(self._inputs) == len(arrays) else [None] * len(arrays)
        self._inputs = [before if new is None else new for before, new in zip(held, arrays, strict=True)]
        was_cancelled = False
        try:
            with self._lock:
                if call in self._cancelled:
                    self._cancelled.discard(call)
                    self._wire.send("cancelled", call)
                    return
                self._module.start(self._inputs)
                self._running = call
            try:
                answer = self._module.wait()
            finally:
                with self._lock:
                    self._running = None
                    was_cancelled = call in self._cancelled
                    self._cancelled.discard(call)
            if was_cancelled:
                self._wire.send("cancelled", call)
            else:
                self._wire.send("done", call, answer)
        except OSError:
            raise
        except Exception as error:
            if was_cancelled:
                self._wire.send("cancelled", call)
            else:
                self._wire.send("failed", call, _sentence(error))


def _sentence(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else 'no reason given'}"
