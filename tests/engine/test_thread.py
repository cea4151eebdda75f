"""One thread, one loop: work from any thread runs there, in order, until it is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError

import pytest

from engine.thread import EngineThread


@pytest.fixture
def thread() -> Iterator[EngineThread]:
    thread = EngineThread("tested")
    yield thread
    assert thread.close(10)


async def where() -> str:
    return threading.current_thread().name


def test_coroutines_and_calls_run_on_the_thread(thread: EngineThread) -> None:
    seen: list[bool] = []
    done = threading.Event()
    thread.call(lambda: seen.append(thread.is_current))
    thread.call(done.set)
    assert done.wait(10)
    assert seen == [True]
    assert thread.start(where()).result(10) == "tested"
    assert not thread.is_current


def test_calls_run_in_the_order_they_were_made(thread: EngineThread) -> None:
    seen: list[int] = []
    for number in range(1000):
        thread.call(seen.append, number)
    thread.start(where()).result(10)
    assert seen == list(range(1000))


def test_what_a_coroutine_raises_comes_back(thread: EngineThread) -> None:
    async def fail() -> None:
        raise KeyError("here")

    with pytest.raises(KeyError, match="here"):
        thread.start(fail()).result(10)


def test_a_failing_call_does_not_end_the_thread(thread: EngineThread) -> None:
    thread.call([].pop)
    assert thread.start(where()).result(10) == "tested"


def test_closing_twice_is_harmless_and_afterwards_nothing_runs() -> None:
    thread = EngineThread()
    assert thread.close(10)
    assert thread.close(10)
    with pytest.raises(RuntimeError):
        thread.call(print)


def test_closing_settles_what_still_waits() -> None:
    thread = EngineThread()
    cleaned = threading.Event()

    async def wait_for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.set()

    waiting = thread.start(wait_for_ever())
    assert thread.start(where()).result(10)
    assert thread.close(10)
    assert cleaned.is_set()
    with pytest.raises(CancelledError):
        waiting.result(10)


def test_a_thread_that_is_busy_says_so() -> None:
    thread = EngineThread()
    release = threading.Event()
    thread.call(release.wait)
    assert not thread.close(0)
    release.set()
    assert thread.close(10)
