"""Eager modules run on one thread, stop between modules, and never after the call has returned."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled
from engine.plans.eager import EagerPlan, EagerStream, finished, unless_cancelled
from engine.plans.plan import EAGER


class Gate:
    """A function that says when it has begun, and goes on when it is let."""

    def __init__(self, stream: EagerStream | None = None) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.ended = threading.Event()
        self.calls = 0
        self._stream = stream

    def __call__(self, *inputs: Any) -> Any:
        self.calls += 1
        self.begun.set()
        try:
            assert self.go_on.wait(60)
            if self._stream is not None:
                self._stream.checkpoint()
            return inputs[0] if inputs else None
        finally:
            self.ended.set()


async def begun(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.begun.wait, 60)


def chain(length: int) -> Any:
    import torch

    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(length)))


async def test_both_ways_of_asking_agree_bit_for_bit(stream: EagerStream) -> None:
    import torch

    module = chain(3)
    plan = EagerPlan(module, stream)
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(1))
    waited = await asyncio.to_thread(plan.execute, (x,))
    awaited = await plan.execute_async((x,))
    assert torch.equal(waited, awaited)
    assert torch.equal(waited, module(x))
    assert waited.is_inference()
    assert (plan.kind, plan.is_alive) == (EAGER, True)


async def test_everything_runs_on_the_one_thread(stream: EagerStream) -> None:
    plan = EagerPlan(lambda: threading.current_thread().name, stream)  # type: ignore[arg-type,return-value]
    names = await asyncio.gather(*(plan.execute_async(()) for _ in range(8)))
    assert len(set(names)) == 1
    assert names[0] != threading.current_thread().name


async def test_a_token_cancelled_beforehand_calls_nothing(stream: EagerStream) -> None:
    gate = Gate()
    plan, token = EagerPlan(gate, stream), CancellationToken()
    token.cancel("too late")
    with pytest.raises(OperationCancelled, match="too late"):
        plan.execute((), token)
    with pytest.raises(OperationCancelled, match="too late"):
        await plan.execute_async((), token)
    assert gate.calls == 0


async def test_a_call_cancelled_while_it_waits_is_never_begun(stream: EagerStream) -> None:
    first, second, token = Gate(), Gate(), CancellationToken()
    running = asyncio.create_task(EagerPlan(first, stream).execute_async((1,)))  # type: ignore[arg-type]
    await begun(first)
    waiting = asyncio.create_task(EagerPlan(second, stream).execute_async((), token))
    await asyncio.sleep(0)
    token.cancel()
    first.go_on.set()
    with pytest.raises(OperationCancelled):
        await waiting
    assert await running == 1
    assert second.calls == 0


@pytest.mark.parametrize("position", [0, 1, 4])
async def test_cancelling_inside_a_module_stops_before_the_next(stream: EagerStream, position: int) -> None:
    import torch

    module, token, called = chain(5), CancellationToken(), []
    stream.watch(module)
    for number, part in enumerate(module):
        part.register_forward_hook(lambda *_, number=number: called.append(number))
    module[position].register_forward_hook(lambda *_: token.cancel("Stop here."))
    plan = EagerPlan(module, stream)
    x = torch.ones(1, 16)
    if position == 4:  # nothing comes after it: the answer is there
        assert (await plan.execute_async((x,), token)).shape == (1, 16)
    else:
        with pytest.raises(OperationCancelled, match="Stop here"):
            await plan.execute_async((x,), token)
    assert called == list(range(position + 1))


async def test_a_cancelled_call_leaves_the_next_alone(stream: EagerStream) -> None:
    import torch

    module, token = chain(2), CancellationToken()
    stream.watch(module)
    handle = module[0].register_forward_hook(lambda *_: token.cancel())
    plan, x = EagerPlan(module, stream), torch.ones(1, 16)
    with pytest.raises(OperationCancelled):
        await plan.execute_async((x,), token)
    handle.remove()
    assert torch.equal(await plan.execute_async((x,), CancellationToken()), module(x))
    stream.checkpoint()  # nobody's call runs: nothing to cancel


async def test_the_loop_goes_on_while_a_module_runs(stream: EagerStream) -> None:
    gate = Gate()
    running = asyncio.create_task(EagerPlan(gate, stream).execute_async((7,)))  # type: ignore[arg-type]
    await begun(gate)
    assert not running.done()
    gate.go_on.set()
    assert await running == 7


@pytest.mark.parametrize("times", [1, 3])
async def test_cancelling_the_task_ends_only_when_the_call_has(stream: EagerStream, times: int) -> None:
    """However often the task is cancelled: what the call uses must not be taken from under it."""
    gate = Gate(stream)
    task = asyncio.create_task(EagerPlan(gate, stream).execute_async(()))
    await begun(gate)
    for _ in range(times):
        task.cancel()
        for _ in range(3):
            await asyncio.sleep(0)
    assert not task.done()
    gate.go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gate.ended.is_set()


async def test_what_a_module_raises_comes_out(stream: EagerStream) -> None:
    def fail() -> Any:
        raise MemoryError

    plan = EagerPlan(fail, stream)
    with pytest.raises(MemoryError):
        plan.execute(())
    with pytest.raises(MemoryError):
        await plan.execute_async(())


async def test_a_closed_plan_and_a_closed_stream_refuse(stream: EagerStream) -> None:
    gate = Gate()
    plan = EagerPlan(gate, stream)
    plan.close()
    assert not plan.is_alive
    for closed in (plan, EagerPlan(gate, stream)):
        stream.close()
        with pytest.raises(HostClosed):
            closed.execute(())
        with pytest.raises(HostClosed):
            await closed.execute_async(())
    assert gate.calls == 0


async def test_closing_the_stream_fails_what_waits_and_lets_the_running_call_end(stream: EagerStream) -> None:
    first, second = Gate(), Gate()
    running = asyncio.create_task(EagerPlan(first, stream).execute_async((1,)))  # type: ignore[arg-type]
    await begun(first)
    waiting = asyncio.create_task(EagerPlan(second, stream).execute_async(()))
    await asyncio.sleep(0)
    stream.close()
    first.go_on.set()
    assert await running == 1
    with pytest.raises(HostClosed):
        await waiting
    assert second.calls == 0


# Futures of others


async def test_waiting_for_work_that_goes_on_by_itself_ends_with_the_token() -> None:
    work: Future[int] = Future()
    token = CancellationToken()
    waiting = asyncio.create_task(unless_cancelled(work, token))
    await asyncio.sleep(0)
    await asyncio.to_thread(token.cancel, "Enough.")
    with pytest.raises(OperationCancelled, match="Enough"):
        await waiting
    assert not work.cancelled()
    work.set_result(1)
    assert await unless_cancelled(work, CancellationToken()) == 1
    with pytest.raises(OperationCancelled):
        await unless_cancelled(work, token)


@pytest.mark.parametrize("wait", [finished, unless_cancelled])
async def test_what_the_work_raises_comes_out(wait: Callable[..., Any]) -> None:
    work: Future[int] = Future()
    waiting = asyncio.create_task(wait(work, CancellationToken()))
    await asyncio.sleep(0)
    work.set_exception(KeyError("here"))
    with pytest.raises(KeyError, match="here"):
        await waiting


async def test_a_task_that_is_cancelled_leaves_foreign_work_alone() -> None:
    work: Future[int] = Future()
    waiting = asyncio.create_task(unless_cancelled(work, CancellationToken()))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not work.cancelled()
