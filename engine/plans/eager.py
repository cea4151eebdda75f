"""The eager backend: torch modules on one worker thread, cancelled between modules by forward hooks."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from engine.cancellation import CancellationToken
from engine.errors import HostClosed
from engine.plans.plan import EAGER

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class EagerStream:
    """The one thread on which eager operators run, one call at a time.

    `checkpoint` is what the hooks of watched modules call: it raises `OperationCancelled` inside the running call once
    that call's token is cancelled.
    """

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="safelight-eager")
        self._token = CancellationToken.none
        self._lock = threading.Lock()
        self._closed = False

    def checkpoint(self) -> None:
        self._token.raise_if_cancelled()

    def submit(self, function: Callable[[], T], token: CancellationToken) -> Future[T]:
        """Run `function` on the stream. The future is done only when nothing of the call runs any more."""
        token.raise_if_cancelled()
        with self._lock:
            if self._closed:
                raise HostClosed("The engine is closed.")
            return self._executor.submit(self._run, function, token)

    def _run(self, function: Callable[[], T], token: CancellationToken) -> T:
        import torch

        self._token = token
        try:
            token.raise_if_cancelled()
            if self._closed:
                raise HostClosed("The engine is closed.")
            with torch.inference_mode():
                return function()
        finally:
            self._token = CancellationToken.none

    async def run_async(self, function: Callable[[], T], token: CancellationToken) -> T:
        """Like `submit`, awaited. Cancelling the awaiting task cancels the call and waits until it has stopped."""
        with token.linked() as own:
            future = self.submit(function, own)
            return await finished(future, own)

    def watch(self, module: torch.nn.Module) -> None:
        """Put a checkpoint before every leaf module of `module`."""
        for part in module.modules():
            if next(part.children(), None) is None:
                part.register_forward_pre_hook(lambda _module, _inputs: self.checkpoint())

    def close(self) -> None:
        """Calls that wait raise `HostClosed`; one that runs goes on."""
        with self._lock:
            self._closed = True
            self._executor.shutdown(wait=False)


async def finished(future: Future[T], token: CancellationToken) -> T:
    """Await a future whose work ends soon after `token` is cancelled; never leave while that work still runs."""
    waiting = asyncio.wrap_future(future)
    try:
        return await asyncio.shield(waiting)
    except asyncio.CancelledError:
        token.cancel("The task was cancelled.")
        while not waiting.done():
            with contextlib.suppress(asyncio.CancelledError):  # cancelled again while it stops
                await asyncio.wait([waiting])
        if not waiting.cancelled():
            waiting.exception()
        raise


async def unless_cancelled(future: Future[T], token: CancellationToken) -> T:
    """Await a future whose work goes on by itself; leave it, with `OperationCancelled`, once `token` is cancelled."""
    loop = asyncio.get_running_loop()
    waiting, cancelled = asyncio.wrap_future(future), loop.create_future()
    waiting.add_done_callback(lambda done: done.cancelled() or done.exception())  # whether or not anybody still waits

    def wake() -> None:
        if not cancelled.done():
            cancelled.set_result(None)

    def on_cancel() -> None:
        loop.call_soon_threadsafe(wake)

    unregister = token.on_cancel(on_cancel)
    try:
        await asyncio.wait((waiting, cancelled), return_when=asyncio.FIRST_COMPLETED)
    finally:
        unregister()
    token.raise_if_cancelled()
    return waiting.result()


class EagerPlan:
    """A torch module as a plan: every signature, no building. Inputs and outputs live on the module's device."""

    kind = EAGER

    def __init__(self, module: Callable[..., torch.Tensor], stream: EagerStream) -> None:
        self._module = module
        self._stream = stream
        self._open = True

    @property
    def is_alive(self) -> bool:
        return self._open

    def execute(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        self._check_open()
        return self._stream.submit(lambda: self._module(*inputs), token).result()

    async def execute_async(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        self._check_open()
        return await self._stream.run_async(lambda: self._module(*inputs), token)

    def _check_open(self) -> None:
        if not self._open:
            raise HostClosed("This plan is closed.")

    def close(self) -> None:
        self._open = False
