"""A plan that lives in a child process of its own, whatever compiled it.

A process of its own for each plan costs some tens of megabytes and buys three promises: a build can be stopped at once,
since compiling can't be interrupted but a process can be killed; nothing that a compiled module does holds this
process's interpreter lock; and a crash in native code loses a plan, not the program.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.plans.eager import finished
from engine.plans.wire import ChildProcess

if TYPE_CHECKING:
    import numpy as np
    import torch

log = logging.getLogger(__name__)

# How long an interrupted call may go on before its process is ended instead; seconds, and share of a run.
GRACE, GRACE_SHARE = 0.045, 0.04


class ProcessPlan:
    """One compiled module behind a `ChildProcess`. Tensors go in from any device and come out on the CPU.

    One call runs at a time; a second waits in the child process. An input that is the very tensor of the call before,
    unchanged (prompt embeddings from step to step, low-rank pairs), isn't sent again.
    """

    def __init__(
        self, kind: str, compiler: str, load: tuple[Any, ...], refusal: str,
        token: CancellationToken = CancellationToken.none, from_store: bool = False,
    ) -> None:  # fmt: skip
        """Have `compiler` ("openvino" or "inductor") make the module that its `load` arguments describe.

        Blocks for seconds. Cancelling the token ends the process at once. Raises `PlanFailed`:
        `refusal` and the compiler's reason. `from_store` says that the plan was made from what the plan store held.
        """
        token.raise_if_cancelled()
        self.kind = kind
        self.from_store = from_store
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._calls: dict[int, Future[torch.Tensor]] = {}
        self._next_call = 0
        self._sent: list[tuple[weakref.ref[torch.Tensor], int] | None] = []
        self._run_seconds = 0.0
        self._open = True
        self._process = ChildProcess("--plan-worker")
        unregister = token.on_cancel(self._process.kill)
        try:
            self._process.wire.send("load", compiler, *load)
            answer = self._process.wire.receive()
        except (EOFError, OSError) as error:
            self._process.kill()
            token.raise_if_cancelled()
            raise PlanFailed(f"{refusal}: its process ended.") from error
        except BaseException:
            self._process.kill()
            raise
        finally:
            unregister()
        if answer[0] != "ready":
            self._process.kill()
            raise PlanFailed(f"{refusal}: {answer[1]}")
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
        with self._sending:  # what "as before" means depends on the order of the calls
            with self._lock:
                call = self._next_call
                self._next_call += 1
                self._calls[call] = future
            try:
                self._process.wire.send("run", call, self._changed(inputs))
            except OSError as error:
                with self._lock:
                    self._calls.pop(call, None)
                raise PlanFailed("The plan's process is gone.") from error
        return call, future

    def _changed(self, inputs: Sequence[torch.Tensor]) -> list[np.ndarray[Any, Any] | None]:
        """The inputs as arrays; None for those that the process holds from the call before."""
        before = self._sent if len(self._sent) == len(inputs) else [None] * len(inputs)
        self._sent = [_identity(tensor) for tensor in inputs]
        arrays: list[np.ndarray[Any, Any] | None] = []
        for tensor, held, now in zip(inputs, before, self._sent, strict=True):
            same = held is not None and now is not None and held[0]() is tensor and held[1] == now[1]
            arrays.append(None if same else tensor.detach().cpu().contiguous().numpy())
        return arrays

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
        self._fail_calls(PlanFailed("The plan's process was ended for the sake of a cancelled call."))
        overdue.set_exception(OperationCancelled())

    def _read_answers(self) -> None:
        import torch

        while True:
            try:
                kind, call, *payload = self._process.wire.receive()
            except EOFError:
                self._fail_calls(PlanFailed("The plan's process ended unexpectedly."))
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
                future.set_exception(PlanFailed(f"The plan failed while running: {payload[0]}"))

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


def _identity(tensor: torch.Tensor) -> tuple[weakref.ref[torch.Tensor], int] | None:
    """What tells a tensor unchanged, or None where torch doesn't count changes in place (inference tensors)."""
    return None if tensor.is_inference() else (weakref.ref(tensor), tensor._version)
