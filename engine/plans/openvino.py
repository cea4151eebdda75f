"""The OpenVINO backend: plans that live in child processes.

A process of its own for each plan costs some tens of megabytes and buys three promises: a build can be stopped at once,
since compiling can't be interrupted but a process can be killed; nothing that OpenVINO does holds this process's
interpreter lock; and a crash in native code loses a plan, not the program.
"""

from __future__ import annotations

import importlib.util
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.plans.eager import finished
from engine.plans.plan import OPENVINO_STATIC, Signature
from engine.plans.wire import ChildProcess

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

# How long an interrupted inference may go on before its process is ended instead; seconds, and share of a run.
GRACE, GRACE_SHARE = 0.045, 0.04


def why_unavailable() -> str | None:
    """A sentence saying why OpenVINO can't be used here, or None."""
    if importlib.util.find_spec("openvino") is None:
        return "OpenVINO isn't installed. Install it with: pip install openvino"
    return None


class OpenVinoPlan:
    """A module compiled by OpenVINO for one signature, in f32 on the CPU. Tensors are f32 (or int64) on the CPU.

    One call runs at a time; a second waits in the child process. Loading raises `PlanFailed` with OpenVINO's reason.
    """

    kind = OPENVINO_STATIC

    def __init__(self, path: Path, signature: Signature, token: CancellationToken = CancellationToken.none) -> None:
        """Read and compile the model at `path`; blocks for seconds. Cancelling the token ends the process at once."""
        token.raise_if_cancelled()
        self._lock = threading.Lock()
        self._calls: dict[int, Future[torch.Tensor]] = {}
        self._next_call = 0
        self._run_seconds = 0.0
        self._open = True
        self._process = ChildProcess("--plan-worker")
        unregister = token.on_cancel(self._process.kill)
        try:
            self._process.wire.send("load", str(path), [shape for shape, _ in signature.inputs])
            answer = self._process.wire.receive()
        except (EOFError, OSError) as error:
            self._process.kill()
            token.raise_if_cancelled()
            raise PlanFailed(f"OpenVINO's process ended while compiling {path.name}.") from error
        except BaseException:
            self._process.kill()
            raise
        finally:
            unregister()
        if answer[0] != "ready":
            self._process.kill()
            raise PlanFailed(f"OpenVINO can't compile {path.name}: {answer[1]}")
        threading.Thread(target=self._read_answers, name="safelight-plan", daemon=True).start()

    @property
    def is_alive(self) -> bool:
        return self._open and self._process.is_running

    def execute(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        call, future = self._start(inputs, token)
        unregister = token.on_cancel(lambda: self._interrupt(call, future))
        try:
            return future.result()
        finally:
            unregister()

    async def execute_async(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        with token.linked() as own:
            call, future = self._start(inputs, own)
            own.on_cancel(lambda: self._interrupt(call, future))
            return await finished(future, own)

    def _start(self, inputs: Sequence[torch.Tensor], token: CancellationToken) -> tuple[int, Future[torch.Tensor]]:
        token.raise_if_cancelled()
        if not self._open:
            raise HostClosed("This plan is closed.")
        future: Future[torch.Tensor] = Future()
        started = time.perf_counter()
        future.add_done_callback(lambda _: setattr(self, "_run_seconds", time.perf_counter() - started))
        with self._lock:
            call = self._next_call
            self._next_call += 1
            self._calls[call] = future
        try:
            self._process.wire.send("run", call, [x.detach().cpu().contiguous().numpy() for x in inputs])
        except OSError as error:
            with self._lock:
                self._calls.pop(call, None)
            raise PlanFailed("OpenVINO's process is gone.") from error
        return call, future

    def _interrupt(self, call: int, future: Future[torch.Tensor]) -> None:
        """Ask the running inference to stop; where it doesn't within the grace, end its process."""
        if future.done():
            return
        watchdog = threading.Timer(max(GRACE, GRACE_SHARE * self._run_seconds), self._end_overdue, [call])
        watchdog.daemon = True
        watchdog.start()
        future.add_done_callback(lambda _: watchdog.cancel())
        try:
            self._process.wire.send("cancel", call)
        except OSError:
            return  # the process is gone, and with it the call: the reader answers

    def _end_overdue(self, call: int) -> None:
        with self._lock:
            overdue = self._calls.pop(call, None)
        if overdue is None:
            return
        log.info("an inference did not stop in time; its plan is ended and will be loaded again")
        self._fail_calls(PlanFailed("OpenVINO's process was ended for the sake of a cancelled call."))
        overdue.set_exception(OperationCancelled())

    def _read_answers(self) -> None:
        import torch

        while True:
            try:
                kind, call, *payload = self._process.wire.receive()
            except EOFError:
                self._fail_calls(PlanFailed("OpenVINO's process ended unexpectedly."))
                return
            with self._lock:
                future = self._calls.pop(call, None)
            if future is None:
                continue
            if kind == "done":
                future.set_result(torch.from_numpy(payload[0]))
            elif kind == "cancelled":
                future.set_exception(OperationCancelled())
            else:
                future.set_exception(PlanFailed(f"OpenVINO failed while running: {payload[0]}"))

    def _fail_calls(self, error: Exception) -> None:
        """End the process, then every call that waits for it."""
        with self._lock:  # before the process ends: the reader, too, fails what it then finds
            calls, self._calls = self._calls, {}
        self._process.kill()
        for future in calls.values():
            future.set_exception(error)

    def close(self) -> None:
        self._open = False
        self._fail_calls(HostClosed("The plan was closed while it ran."))
