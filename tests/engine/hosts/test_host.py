"""The host answers every call: by its plan where there is one, else eagerly, until it is closed."""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.hosts.counters import Counters
from engine.hosts.host import CompiledModelHost
from engine.plans.plan import EAGER, OPEN, OPENVINO_STATIC, Plan, Signature

pytestmark = pytest.mark.usefixtures("torch_imported")


class FakePlan:
    """Answers in memory with its name; `during` runs inside each call. Notices calls after its end."""

    def __init__(self, name: str, during: Callable[[CancellationToken], None] = lambda token: None) -> None:
        self.kind = EAGER if name == "eager" else OPENVINO_STATIC
        self.name = name
        self.is_alive = True
        self.calls = 0
        self.closed = 0
        self.misused = False
        self._during = during
        self._lock = threading.Lock()
        self._running = 0

    def execute(self, inputs: Sequence[Any], token: CancellationToken = CancellationToken.none) -> Any:
        token.raise_if_cancelled()
        with self._lock:
            self.calls += 1
            self._running += 1
            self.misused |= self.closed > 0
        try:
            self._during(token)
        finally:
            with self._lock:
                self._running -= 1
        return self.name

    async def execute_async(self, inputs: Sequence[Any], token: CancellationToken = CancellationToken.none) -> Any:
        return await asyncio.to_thread(self.execute, inputs, token)

    def close(self) -> None:
        with self._lock:
            self.misused |= self._running > 0
            self.closed += 1
        self.is_alive = False


class Builds:
    """What a host asks for: futures that the test settles."""

    def __init__(self) -> None:
        self.asked: list[tuple[Signature, CancellationToken, Future[Plan]]] = []

    def __call__(self, signature: Signature, token: CancellationToken) -> Future[Plan]:
        future: Future[Plan] = Future()
        self.asked.append((signature, token, future))
        return future

    def finish(self, plan: FakePlan, number: int = -1) -> FakePlan:
        self.asked[number][2].set_result(plan)
        return plan


class Setting:
    """A host with its builds, an eager plan, and one input."""

    def __init__(self, sync: bool) -> None:
        import torch

        self.builds = Builds()
        self.host = CompiledModelHost("noise predictor", self.builds)
        self.eager = FakePlan("eager")
        self.inputs = (torch.zeros(2, 4, 8, 8), torch.tensor(1.0))
        self.signature = Signature.of(self.inputs)
        self._sync = sync

    def predict(
        self, version: int = 0, token: CancellationToken = CancellationToken.none, inputs: Any = None,
        compiled: bool = True,
    ) -> Any:  # fmt: skip
        arguments = (inputs or self.inputs, version, self.eager, token, compiled)
        if self._sync:
            return self.host.predict(*arguments)
        return asyncio.run(self.host.predict_async(*arguments))

    def with_plan(self, name: str = "plan", version: int = 0, **options: Any) -> FakePlan:
        self.host.prepare(self.signature, version)
        return self.builds.finish(FakePlan(name, **options))

    @property
    def counters(self) -> Counters:
        return self.host.counters


@pytest.fixture(params=["sync", "async"])
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(request.param == "sync")


def fail(error: BaseException) -> Callable[[CancellationToken], None]:
    def during(token: CancellationToken) -> None:
        raise error

    return during


# Who answers


def test_without_a_plan_the_eager_module_answers(setting: Setting) -> None:
    assert setting.predict() == "eager"
    assert setting.counters == Counters(slow_calls=1, eager_answers=1)
    assert setting.builds.asked == []  # only `prepare` asks for plans


def test_the_first_call_of_a_plan_is_slow_and_the_rest_are_fast(setting: Setting) -> None:
    setting.with_plan()
    assert [setting.predict() for _ in range(5)] == ["plan"] * 5
    assert setting.counters == Counters(fast_hits=4, slow_calls=1, plans_built=1)


def test_a_plan_answers_only_its_own_signature(setting: Setting) -> None:
    import torch

    plan = setting.with_plan()
    for other in (torch.zeros(1, 4, 8, 8), torch.zeros(2, 4, 8, 8, dtype=torch.float64)):
        assert setting.predict(inputs=(other, setting.inputs[1])) == "eager"
    assert setting.predict() == "plan"
    assert plan.calls == 1


def test_who_asks_for_the_eager_answer_gets_it(setting: Setting) -> None:
    plan = setting.with_plan()
    assert setting.predict(compiled=False) == "eager"
    assert plan.calls == 0
    assert setting.predict() == "plan"
    assert setting.predict(compiled=False) == "eager"
    assert setting.counters == Counters(slow_calls=1, plans_built=1, eager_answers=2)


def test_the_fast_path_takes_no_lock(setting: Setting, in_thread: Callable[..., Future[Any]]) -> None:
    setting.with_plan()
    assert setting.predict() == "plan"
    with setting.host._lock:
        assert in_thread(setting.predict).result(60) == "plan"
    assert setting.counters.fast_hits == 1


def test_the_fast_path_is_for_the_same_count_shapes_and_types(setting: Setting) -> None:
    import torch

    setting.with_plan()
    first, second = setting.inputs
    others = [(first,), (*setting.inputs, second), (first, second.reshape(1)), (first.half(), second), (second, first)]
    for inputs in others:
        assert setting.predict() == "plan"
        assert setting.predict(inputs=inputs) == "eager"
    assert setting.predict(inputs=(torch.ones(2, 4, 8, 8), torch.tensor(7.0))) == "plan"
    assert setting.counters == Counters(fast_hits=5, slow_calls=6, plans_built=1, eager_answers=5)


def test_a_plan_that_is_being_built_keeps_nobody_waiting(setting: Setting) -> None:
    building = setting.host.prepare(setting.signature, 0)
    assert not setting.host.ready(setting.signature, 0)
    assert setting.predict() == "eager"
    plan = setting.builds.finish(FakePlan("plan"))
    assert building.result(0) is plan
    assert setting.host.ready(setting.signature, 0)
    assert setting.predict() == "plan"


def test_a_plan_is_asked_for_once(setting: Setting) -> None:
    first = setting.host.prepare(setting.signature, 0)
    assert setting.host.prepare(setting.signature, 0) is first
    plan = setting.builds.finish(FakePlan("plan"))
    assert setting.host.prepare(setting.signature, 0).result(0) is plan
    assert len(setting.builds.asked) == 1


def test_who_asked_can_cancel_the_build() -> None:
    setting, token = Setting(True), CancellationToken()
    setting.host.prepare(setting.signature, 0, token)
    assert not setting.builds.asked[0][1].is_cancelled
    token.cancel("Enough.")
    assert (setting.builds.asked[0][1].is_cancelled, setting.builds.asked[0][1].reason) == (True, "Enough.")


def test_who_waits_for_a_plan_finds_it_ready(in_thread: Callable[..., Future[Any]]) -> None:
    setting = Setting(True)
    building = setting.host.prepare(setting.signature, 0)

    def wait() -> bool:
        building.result(60)
        return setting.host.ready(setting.signature, 0)

    waiting = [in_thread(wait) for _ in range(4)]
    setting.builds.finish(FakePlan("plan"))
    assert all(found.result(60) for found in waiting)


def test_who_waits_for_a_plan_can_not_cancel_it_for_others() -> None:
    setting = Setting(True)
    assert not setting.host.prepare(setting.signature, 0).cancel()
    setting.builds.finish(FakePlan("plan"))
    assert setting.predict() == "plan"


def test_a_build_may_ask_the_host_and_refuse_at_once() -> None:
    setting = Setting(True)

    def build(signature: Signature, token: CancellationToken) -> Future[Plan]:
        assert not host.ready(signature, 0)  # the lock is free
        raise PlanFailed("Not on this computer.")

    host = CompiledModelHost("VAE decoder", build)
    for expected in ("Not on this computer", "no compiled plan"):
        with pytest.raises(PlanFailed, match=expected):
            host.prepare(setting.signature, 0)


def test_a_build_that_runs_out_of_memory_may_be_tried_again() -> None:
    setting = Setting(True)
    building = setting.host.prepare(setting.signature, 0)
    setting.builds.asked[0][2].set_exception(MemoryError())
    with pytest.raises(MemoryError):
        building.result(0)
    setting.with_plan()
    assert setting.predict() == "plan"


def test_a_host_without_a_backend_always_answers_eagerly() -> None:
    setting = Setting(True)
    host = CompiledModelHost("VAE decoder")
    with pytest.raises(PlanFailed, match="VAE decoder has no compiled plan"):
        host.prepare(setting.signature, 0)
    assert host.predict(setting.inputs, 0, setting.eager) == "eager"


def test_it_says_when_a_plan_is_ready() -> None:
    setting, told = Setting(True), []
    host = CompiledModelHost("VAE decoder", setting.builds, lambda: told.append(host.counters.plans_built))
    host.prepare(setting.signature, 0)
    assert told == []
    setting.builds.finish(FakePlan("plan"))
    assert told == [1]


# What goes wrong


def test_a_plan_that_breaks_is_dropped_and_the_call_answered_eagerly(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    plan = setting.with_plan(during=fail(PlanFailed("It crashed.")))
    assert [setting.predict(), setting.predict()] == ["eager", "eager"]
    assert (plan.calls, plan.closed) == (1, 1)
    assert setting.counters.poisoned == 1
    assert setting.counters.eager_answers == 2
    assert caplog.text.count("It crashed.") == 1
    assert not setting.host.ready(setting.signature, 0)
    with pytest.raises(PlanFailed):
        setting.host.prepare(setting.signature, 0)


def test_a_poisoned_plan_that_was_fast_is_dropped_too(setting: Setting) -> None:
    breaks: list[Exception] = []

    def during(token: CancellationToken) -> None:
        if breaks:
            raise breaks[0]

    setting.with_plan(during=during)
    assert [setting.predict(), setting.predict()] == ["plan", "plan"]
    breaks.append(PlanFailed("It crashed."))
    assert [setting.predict(), setting.predict()] == ["eager", "eager"]
    assert setting.counters == Counters(fast_hits=2, slow_calls=2, plans_built=1, poisoned=1, eager_answers=2)


def test_nothing_holds_on_to_a_plan_that_broke() -> None:
    setting, is_broken = Setting(True), False

    def during(token: CancellationToken) -> None:
        if is_broken:
            raise PlanFailed("It crashed.")

    reference = weakref.ref(setting.with_plan(during=during))
    setting.builds.asked.clear()
    assert [setting.predict(), setting.predict()] == ["plan", "plan"]
    is_broken = True
    assert setting.predict() == "eager"
    assert reference() is None


def test_after_a_version_change_a_plan_is_worth_another_try(setting: Setting) -> None:
    setting.with_plan(during=fail(PlanFailed("It crashed.")))
    assert setting.predict() == "eager"
    setting.with_plan("better", version=1)
    assert setting.predict(version=1) == "better"


def test_a_plan_that_can_not_be_built_leaves_the_signature_eager(setting: Setting) -> None:
    setting.host.prepare(setting.signature, 0)
    setting.builds.asked[0][2].set_exception(PlanFailed("No such operator."))
    assert setting.predict() == "eager"
    with pytest.raises(PlanFailed):
        setting.host.prepare(setting.signature, 0)
    setting.host.prepare(setting.signature, 1)
    assert len(setting.builds.asked) == 2


def test_a_cancelled_build_can_be_asked_for_again(setting: Setting) -> None:
    setting.host.prepare(setting.signature, 0)
    setting.builds.asked[0][2].set_exception(OperationCancelled())
    setting.with_plan()
    assert setting.predict() == "plan"


@pytest.mark.parametrize("error", [OperationCancelled("Enough."), MemoryError(), KeyboardInterrupt(), SystemExit(3)])
def test_what_no_fallback_can_mend_goes_through(error: BaseException) -> None:
    setting = Setting(sync=True)
    plan = setting.with_plan(during=fail(error))
    with pytest.raises(type(error)):
        setting.predict()
    assert setting.eager.calls == 0
    assert setting.counters.poisoned == 0
    assert plan.closed == 0


@pytest.mark.parametrize("error", [OperationCancelled("Enough."), MemoryError()])
def test_what_no_fallback_can_mend_goes_through_awaited(error: BaseException) -> None:
    setting = Setting(sync=False)
    plan = setting.with_plan(during=fail(error))
    with pytest.raises(type(error)):
        setting.predict()
    assert (setting.eager.calls, setting.counters.poisoned, plan.closed) == (0, 0, 0)


def test_an_eager_failure_is_nobody_else_s(setting: Setting) -> None:
    setting.eager = FakePlan("eager", during=fail(PlanFailed("of the eager module")))
    with pytest.raises(PlanFailed, match="of the eager module"):
        setting.predict()
    assert setting.counters.poisoned == 0


def test_a_cancelled_call_is_not_answered_eagerly_after_its_plan_broke(setting: Setting) -> None:
    token = CancellationToken()

    def during(_: CancellationToken) -> None:
        token.cancel("Enough.")
        raise PlanFailed("It crashed.")

    setting.with_plan(during=during)
    with pytest.raises(OperationCancelled, match="Enough"):
        setting.predict(token=token)
    assert setting.eager.calls == 0


def test_a_dead_plan_is_passed_over_and_can_be_built_again(setting: Setting) -> None:
    plan = setting.with_plan()
    assert setting.predict() == "plan"
    plan.is_alive = False
    assert not setting.host.ready(setting.signature, 0)
    assert setting.predict() == "eager"
    setting.with_plan("again")
    assert setting.predict() == "again"
    assert setting.counters.poisoned == 0


# Versions and the end


def test_a_version_change_closes_the_plans(setting: Setting) -> None:
    plan = setting.with_plan()
    assert setting.predict() == "plan"
    assert setting.predict(version=1) == "eager"
    assert plan.closed == 1
    assert not setting.host.ready(setting.signature, 1)


class Blocked:
    """Keeps a plan's call running until it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def __call__(self, token: CancellationToken) -> None:
        self.begun.set()
        assert self.go_on.wait(60)


def test_a_version_change_closes_old_plans_after_the_last_running_call(
    setting: Setting, in_thread: Callable[..., Future[Any]]
) -> None:
    blocked = Blocked()
    plan = setting.with_plan(during=blocked)
    running = [in_thread(setting.predict) for _ in range(2)]
    assert blocked.begun.wait(60)
    assert setting.predict(version=1) == "eager"
    assert plan.closed == 0
    blocked.go_on.set()
    answers = [call.result(60) for call in running]
    assert "plan" in answers  # the other may have come after the change, back to version 0
    assert not plan.misused
    assert plan.closed == 1


def test_closing_during_a_call_lets_it_end(setting: Setting, in_thread: Callable[..., Future[Any]]) -> None:
    blocked = Blocked()
    plan = setting.with_plan(during=blocked)
    running = in_thread(setting.predict)
    assert blocked.begun.wait(60)
    setting.host.close()
    setting.host.close()
    assert plan.closed == 0
    with pytest.raises(HostClosed, match="noise predictor is closed"):
        setting.predict()
    blocked.go_on.set()
    assert running.result(60) == "plan"
    assert (plan.closed, plan.misused) == (1, False)


def test_one_failure_does_not_close_the_plan_under_another_call(
    setting: Setting, in_thread: Callable[..., Future[Any]]
) -> None:
    """The other call still gets its answer, from the plan or eagerly, and never a closed plan's refusal."""
    blocked, calls = Blocked(), iter(range(2))

    def during(token: CancellationToken) -> None:
        if next(calls) == 0:
            blocked(token)
        else:
            raise PlanFailed("It crashed.")

    plan = setting.with_plan(during=during)
    running = in_thread(setting.predict)
    assert blocked.begun.wait(60)
    assert setting.predict() == "eager"
    assert plan.closed == 0
    blocked.go_on.set()
    assert running.result(60) == "plan"
    assert (plan.closed, plan.misused) == (1, False)


def test_calls_that_break_together_poison_once(setting: Setting, in_thread: Callable[..., Future[Any]]) -> None:
    together = threading.Barrier(4)

    def during(token: CancellationToken) -> None:
        together.wait(60)
        raise PlanFailed("It crashed.")

    plan = setting.with_plan(during=during)
    assert [call.result(60) for call in [in_thread(setting.predict) for _ in range(4)]] == ["eager"] * 4
    assert (setting.counters.poisoned, setting.counters.eager_answers, plan.closed) == (1, 4, 1)


def test_a_closed_host_refuses_everything(setting: Setting) -> None:
    plan = setting.with_plan()
    setting.host.close()
    assert plan.closed == 1
    for ask in (
        setting.predict,
        lambda: setting.host.ready(setting.signature, 0),
        lambda: setting.host.prepare(setting.signature, 0),
    ):
        with pytest.raises(HostClosed):
            ask()
    assert setting.eager.calls == 0


@pytest.mark.parametrize("end", ["close", "version"])
def test_nobody_goes_on_building_for_a_version_that_is_over(setting: Setting, end: str) -> None:
    building = setting.host.prepare(setting.signature, 0)
    if end == "close":
        setting.host.close()
    else:
        assert setting.predict(version=1) == "eager"
    assert setting.builds.asked[0][1].is_cancelled
    assert not building.done()  # until nothing of it runs any more
    setting.builds.asked[0][2].set_exception(OperationCancelled())
    with pytest.raises(HostClosed if end == "close" else OperationCancelled):
        building.result(0)


@pytest.mark.parametrize("end", ["close", "version"])
def test_a_plan_that_comes_too_late_is_closed(setting: Setting, end: str) -> None:
    building = setting.host.prepare(setting.signature, 0)
    if end == "close":
        setting.host.close()
    else:
        assert setting.predict(version=1) == "eager"
    plan = setting.builds.finish(FakePlan("late"))
    assert (plan.closed, setting.counters.plans_built) == (1, 0)
    with pytest.raises(HostClosed if end == "close" else OperationCancelled):
        building.result(0)
    if end == "version":
        assert setting.predict(version=1) == "eager"


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_predict_change_versions_break_plans_and_close_are_all_answered(seed: int) -> None:
    """Every call is answered or refused as closed; no plan is used after its end; every plan is closed."""
    setting = Setting(True)
    plans: list[FakePlan] = []

    def build(signature: Signature, token: CancellationToken) -> Future[Plan]:
        number = len(plans)
        plan = FakePlan(f"plan {number}", fail(PlanFailed("It crashed.")) if number % 3 == 2 else lambda _: None)
        plans.append(plan)  # hosts ask from several threads at once
        future: Future[Plan] = Future()
        future.set_result(plan)
        return future

    host = CompiledModelHost("noise predictor", build)
    start, stopped = threading.Barrier(6), threading.Event()
    wrong: list[object] = []
    answered = [0] * 6

    def hammer(number: int) -> None:
        dice = random.Random(seed * 10 + number)
        start.wait()
        for turn in range(300):
            if number == 0 and turn == 250:
                stopped.set()
                host.close()
            try:
                version = turn // 20
                if dice.random() < 0.3:
                    host.prepare(setting.signature, version)
                answer = host.predict(setting.inputs, version, setting.eager)
            except PlanFailed:
                continue  # from `prepare`: this signature stays eager
            except HostClosed:
                if not stopped.is_set():
                    wrong.append("closed too early")
                return
            except BaseException as error:
                wrong.append(error)
                return
            answered[number] += 1
            if not (answer == "eager" or str(answer).startswith("plan")):
                wrong.append(answer)

    threads = [threading.Thread(target=hammer, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert [plan.name for plan in plans if plan.misused] == []
    assert {plan.closed for plan in plans} == {1}
    counters = host.counters
    by_plans = sum(plan.calls for plan in plans)
    assert sum(answered) == by_plans - counters_of_failures(plans) + counters.eager_answers
    assert 0 < counters.plans_built <= len(plans)  # those that came too late for their version don't count
    assert counters.fast_hits + counters.slow_calls == sum(answered)


def counters_of_failures(plans: list[FakePlan]) -> int:
    """How many calls the plans that always break have had."""
    return sum(plan.calls for number, plan in enumerate(plans) if number % 3 == 2)


# Sizes


def test_a_host_of_open_sizes_asks_once_and_serves_them_all() -> None:
    import torch

    builds, eager = Builds(), FakePlan("eager")
    host = CompiledModelHost("noise predictor", builds, open_sizes=True)
    small, large = torch.zeros(1, 4, 8, 8), torch.zeros(2, 4, 9, 7)
    host.prepare(Signature.of((small,)), 0)
    assert builds.asked[0][0] == Signature((((OPEN,) * 4, "float32"),))
    builds.finish(FakePlan("plan"))
    assert host.ready(Signature.of((large,)), 0)
    assert [host.predict((x,), 0, eager) for x in (small, large, small)] == ["plan"] * 3
    assert host.counters == Counters(fast_hits=2, slow_calls=1, plans_built=1)
    for other in (torch.zeros(4, 8, 8), torch.zeros(1, 4, 8, 8, dtype=torch.int64)):
        assert host.predict((other,), 0, eager) == "eager"


def test_beyond_its_capacity_a_host_closes_the_plan_unused_for_longest() -> None:
    import torch

    builds, eager = Builds(), FakePlan("eager")
    host = CompiledModelHost("noise predictor", builds, capacity=3)
    inputs = [(torch.zeros(size),) for size in (1, 2, 3, 4)]
    plans: list[FakePlan] = []
    for x in inputs[:3]:
        host.prepare(Signature.of(x), 0)
        plans.append(builds.finish(FakePlan("plan")))
    for used in (0, 2):
        assert host.predict(inputs[used], 0, eager) == "plan"
    host.prepare(Signature.of(inputs[3]), 0)
    plans.append(builds.finish(FakePlan("plan")))
    assert [plan.closed for plan in plans] == [0, 1, 0, 0]
    assert [host.predict(x, 0, eager) for x in inputs] == ["plan", "eager", "plan", "plan"]


def test_beyond_its_capacity_a_host_keeps_the_plan_that_answers_now() -> None:
    """It may be in the middle of a picture, which is to end as it began, however many other plans come."""
    import torch

    builds, eager = Builds(), FakePlan("eager")
    host = CompiledModelHost("noise predictor", builds, capacity=1)
    inputs = [(torch.zeros(size),) for size in (1, 2, 3)]
    plans: list[FakePlan] = []
    for x in inputs:
        host.prepare(Signature.of(x), 0)
        plans.append(builds.finish(FakePlan(f"plan {len(plans)}")))
        assert host.predict(inputs[0], 0, eager) == "plan 0"
    assert [plan.closed for plan in plans] == [0, 1, 0]
    assert host.predict(inputs[2], 0, eager) == "plan 2"
    assert [plan.closed for plan in plans] == [1, 1, 0]
    assert host.predict(inputs[0], 0, eager) == "eager"


def test_a_plan_that_has_to_go_stays_open_for_the_call_that_runs_it(in_thread: Callable[..., Future[Any]]) -> None:
    import torch

    builds, eager, blocked = Builds(), FakePlan("eager"), Blocked()
    host = CompiledModelHost("noise predictor", builds, capacity=1)
    old, new = (torch.zeros(1),), (torch.zeros(2),)
    host.prepare(Signature.of(old), 0)
    plan = builds.finish(FakePlan("old", blocked))
    running = in_thread(host.predict, old, 0, eager)
    assert blocked.begun.wait(60)
    host.prepare(Signature.of(new), 0)
    builds.finish(FakePlan("new"))
    assert host.predict(new, 0, eager) == "new"
    assert host.predict(old, 0, eager) == "eager"
    assert plan.closed == 0
    blocked.go_on.set()
    assert running.result(60) == "old"
    assert (plan.closed, plan.misused) == (1, False)


def test_a_host_that_builds_on_demand_asks_at_the_first_call_and_once() -> None:
    import torch

    builds, eager, inputs = Builds(), FakePlan("eager"), (torch.zeros(1),)
    host = CompiledModelHost("noise predictor", builds, build_on_demand=True)
    assert [host.predict(inputs, 0, eager) for _ in range(3)] == ["eager"] * 3
    assert len(builds.asked) == 1
    builds.finish(FakePlan("plan"))
    assert host.predict(inputs, 0, eager) == "plan"


def test_a_plan_from_the_store_is_counted_as_one() -> None:
    import torch

    builds, inputs = Builds(), (torch.zeros(1),)
    host = CompiledModelHost("noise predictor", builds)
    host.prepare(Signature.of(inputs), 0)
    plan: Any = FakePlan("plan")
    plan.from_store = True
    builds.finish(plan)
    assert (host.counters.plans_built, host.counters.loaded_from_disk) == (1, 1)


# Swaps


class LargePlan:
    """Holds 12 MB, and answers only while it is open."""

    kind = OPENVINO_STATIC

    def __init__(self) -> None:
        import torch

        self.weights = torch.ones(3_000_000)
        self.is_alive = True

    def execute(self, inputs: Any, token: CancellationToken = CancellationToken.none) -> Any:
        assert self.is_alive, "a call ran a closed plan"
        return inputs[0] + self.weights[:1]

    async def execute_async(self, inputs: Any, token: CancellationToken = CancellationToken.none) -> Any:
        return self.execute(inputs, token)

    def close(self) -> None:
        self.is_alive = False


def built_at_once(made: list[Any]) -> Callable[[Signature, CancellationToken], Future[Plan]]:
    def build(signature: Signature, token: CancellationToken) -> Future[Plan]:
        future: Future[Plan] = Future()
        plan = LargePlan()
        made.append(weakref.ref(plan))
        future.set_result(plan)
        return future

    return build


def test_a_thousand_swaps_of_large_plans_leave_nothing_behind() -> None:
    import torch

    made: list[Any] = []
    host = CompiledModelHost("noise predictor", built_at_once(made))
    inputs, process = (torch.zeros(1),), psutil.Process()
    resident = []
    for version in range(1000):
        host.prepare(Signature.of(inputs), version)
        assert host.predict(inputs, version, FakePlan("eager")).item() == 1
        if version >= 100:
            resident.append(process.memory_info().rss)
    host.close()
    assert not any(reference() for reference in made)
    assert max(resident) <= 1.05 * min(resident)


def test_threads_that_predict_swap_and_close_at_once_never_run_a_closed_plan() -> None:
    import torch

    made: list[Any] = []
    for _ in range(20):
        host = CompiledModelHost("noise predictor", built_at_once(made), build_on_demand=True, capacity=1)
        eager: Any = LargePlan()
        start, version = threading.Barrier(5), [0]

        def predict(size: int, host: Any = host, start: Any = start, version: Any = version, eager: Any = eager) -> int:
            start.wait()
            answered = 0
            for _ in range(300):
                try:
                    assert host.predict((torch.zeros(size),), version[0], eager)[0] == 1
                except HostClosed:
                    break
                answered += 1
            return answered

        def predict_async(host: Any = host, start: Any = start, version: Any = version, eager: Any = eager) -> int:
            async def run() -> int:
                start.wait()
                answered = 0
                for _ in range(300):
                    try:
                        assert (await host.predict_async((torch.zeros(1),), version[0], eager))[0] == 1
                    except HostClosed:
                        break
                    answered += 1
                return answered

            return asyncio.run(run())

        def disturb(host: Any = host, start: Any = start, version: Any = version) -> int:
            start.wait()
            for number in range(50):
                version[0] = number
                host.ready(Signature.of((torch.zeros(1),)), number)
            host.close()
            return 1

        with ThreadPoolExecutor(5) as pool:
            calls = [pool.submit(predict, 1), pool.submit(predict, 1), pool.submit(predict, 2)]
            calls += [pool.submit(predict_async), pool.submit(disturb)]
            assert [call.result(60) for call in calls][-1] == 1
        with pytest.raises(HostClosed):
            host.predict((torch.zeros(1),), 0, eager)
    assert not any(reference() for reference in made)
