"""A plan is closed once, when it is given up and no call is inside it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from engine.hosts.counters import Tally
from engine.hosts.lease import Lease
from tests.engine.hosts.test_host import FakePlan


def test_calls_go_in_and_out_without_closing_the_plan() -> None:
    plan = FakePlan("plan")
    lease = Lease(plan)
    for _ in range(3):
        assert lease.enter()
    for _ in range(3):
        lease.leave()
    assert lease.enter()
    assert plan.closed == 0


def test_a_plan_given_up_is_closed_at_once_where_nobody_is_inside() -> None:
    plan = FakePlan("plan")
    lease = Lease(plan)
    lease.give_up()
    lease.give_up()
    assert not lease.enter()
    assert plan.closed == 1


def test_a_plan_given_up_is_closed_by_the_last_call_that_leaves() -> None:
    plan = FakePlan("plan")
    lease = Lease(plan)
    assert lease.enter()
    assert lease.enter()
    lease.give_up()
    assert not lease.enter()
    lease.leave()
    assert plan.closed == 0
    lease.leave()
    assert plan.closed == 1


@pytest.mark.parametrize("_round", range(50))
def test_threads_that_enter_leave_and_give_up_at_once_close_it_once(
    in_thread: Callable[..., Future[Any]], _round: int
) -> None:
    plan, start = FakePlan("plan"), threading.Barrier(6)
    lease = Lease(plan)

    def call() -> int:
        start.wait()
        entered = 0
        for _ in range(200):
            if not lease.enter():
                break
            entered += 1
            plan.execute(())
            lease.leave()
        return entered

    def end() -> int:
        start.wait()
        lease.give_up()
        return 0

    running = [in_thread(call) for _ in range(4)] + [in_thread(end) for _ in range(2)]
    assert sum(done.result(60) for done in running) == plan.calls
    assert (plan.closed, plan.misused) == (1, False)


def test_a_tally_loses_nothing_between_threads_and_is_not_moved_by_reading(
    in_thread: Callable[..., Future[Any]],
) -> None:
    tally, start = Tally(), threading.Barrier(5)

    def count() -> None:
        start.wait()
        for _ in range(5000):
            tally.add()

    def read() -> list[int]:
        start.wait()
        return [tally.value for _ in range(500)]

    running = [in_thread(count) for _ in range(4)]
    seen = in_thread(read).result(60)
    for done in running:
        done.result(60)
    assert seen == sorted(seen)
    assert [tally.value, tally.value] == [20_000, 20_000]
