"""The child process behind one OpenVINO plan: reads a model, compiles it for fixed shapes, runs it, can be interrupted.

Messages in: ("load", path, shapes), ("run", call, arrays), ("cancel", call).
Messages out: ("ready",) or ("refused", sentence) after load; ("done", call, array), ("cancelled", call) or
("failed", call, sentence) after run.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import Any

from engine.plans.openvino_runtime import import_openvino
from engine.plans.wire import Wire

# f32 whatever the device would rather use, so that results stay within rounding of eager ones.
CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}


def serve(wire: Wire) -> None:
    worker = _Worker(wire)
    threading.Thread(target=worker.run_calls, name="inference", daemon=True).start()
    while True:
        try:
            message = wire.receive()
        except EOFError:
            return
        worker.handle(message)


class _Worker:
    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._jobs: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._request: Any = None
        self._running: int | None = None
        self._cancelled: set[int] = set()

    def handle(self, message: tuple[Any, ...]) -> None:
        if message[0] == "cancel":
            with self._lock:
                self._cancelled.add(message[1])
                if self._running == message[1]:
                    self._request.cancel()
        else:
            self._jobs.put(message)

    def run_calls(self) -> None:
        try:
            while True:
                message = self._jobs.get()
                if message[0] == "load":
                    self._load(*message[1:])
                else:
                    self._run(*message[1:])
        except OSError:
            os._exit(1)  # the parent is gone

    def _load(self, path: str, shapes: list[tuple[int, ...]]) -> None:
        try:
            ov = import_openvino()
            core = ov.Core()
            model = core.read_model(path)
            model.reshape({port: list(shape) for port, shape in zip(model.inputs, shapes, strict=True)})
            compiled = core.compile_model(model, "CPU", CONFIG)
            self._request = compiled.create_infer_request()
        except Exception as error:
            self._wire.send("refused", _sentence(error))
            return
        self._wire.send("ready")

    def _run(self, call: int, arrays: list[Any]) -> None:
        was_cancelled = False
        try:
            with self._lock:
                if call in self._cancelled:
                    self._cancelled.discard(call)
                    self._wire.send("cancelled", call)
                    return
                self._request.start_async(arrays, share_inputs=True)
                self._running = call
            try:
                self._request.wait()
            finally:
                with self._lock:
                    self._running = None
                    was_cancelled = call in self._cancelled
                    self._cancelled.discard(call)
            if was_cancelled:
                self._wire.send("cancelled", call)
            else:
                self._wire.send("done", call, self._request.get_output_tensor(0).data)
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
