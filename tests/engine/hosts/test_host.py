"""The host answers every call: by its plan where there is one, else eagerly, until it is closed."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.hosts.host import CompiledModelHost, Counters
from engine.hosts.runner import Runner
from engine.plans.eager import EagerStream
from engine.plans.plan import EAGER, OPENVINO_STATIC, Plan, Signature

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
        self, version: int = 0, token: CancellationToken = CancellationToken.none, compiled: bool = True,
        inputs: Any = None,
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


def test_the_build_gets_the_token_of_who_asked() -> None:
    setting, token = Setting(True), CancellationToken()
    setting.host.prepare(setting.signature, 0, token)
    assert setting.builds.asked[0][1] is token


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
def test_a_plan_that_comes_too_late_is_closed(setting: Setting, end: str) -> None:
    setting.host.prepare(setting.signature, 0)
    if end == "close":
        setting.host.close()
    else:
        assert setting.predict(version=1) == "eager"
    plan = setting.builds.finish(FakePlan("late"))
    assert (plan.closed, setting.counters.plans_built) == (1, 0)
    if end == "version":
        assert setting.predict(version=1) == "eager"


@pytest.mark.parametrize("seed", range(3))
def test_threads_that_predict_change_versions_break_plans_and_close_are_all_answered(seed: int) -> None:
    """Every call is answered or refused as closed; no plan is used after its end; every plan is closed."""
    setting = Setting(True)
    plans: list[FakePlan] = []

    def build(signature: Signature, token: CancellationToken) -> Future[Plan]:
        number = len(plans)
        plans.append(FakePlan(f"plan {number}", fail(PlanFailed("It crashed.")) if number % 3 == 2 else lambda _: None))
        future: Future[Plan] = Future()
        future.set_result(plans[-1])
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


# The runner


async def test_a_runner_hands_its_version_to_its_host(stream: EagerStream) -> None:
    import torch

    builds, x = Builds(), torch.ones(1, 2)
    runner = Runner(CompiledModelHost("VAE decoder", builds), lambda x: x + 1, stream)
    signature = Signature.of((x,))
    assert runner.name == "VAE decoder"
    assert torch.equal(await runner.run((x,), compiled=True), x + 1)
    runner.prepare(signature)
    plan = builds.finish(FakePlan("plan"))
    assert runner.ready(signature)
    assert await runner.run((x,), compiled=True) == "plan"
    assert torch.equal(await runner.run((x,), compiled=False), x + 1)
    runner.version += 1
    assert not runner.ready(signature)
    assert plan.closed == 1
    runner.close()
    with pytest.raises(HostClosed):
        await runner.run((x,), compiled=False)
