"""A module is compiled of its own accord once: when its training has ended, and only if asked for."""

from __future__ import annotations

import asyncio
import copy
import pickle
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.hosts.auto_compile import AutoCompile
from engine.hosts.counters import Counters
from engine.hosts.host import CompiledModelHost
from tests.engine.hosts.test_host import Builds, FakePlan

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.usefixtures("torch_imported")


class Setting:
    """A linear layer, its host, and an eager plan that stands for it."""

    def __init__(self, sync: bool, trained: bool = True, enabled: bool = True) -> None:
        import torch

        self.module = torch.nn.Linear(2, 2)
        self.module.train(trained)
        self.x = torch.ones(1, 2)
        self.builds = Builds()
        self.host = CompiledModelHost("noise predictor", self.builds)
        self.eager = FakePlan("eager")
        self.auto = AutoCompile(self.host, self.module, enabled)
        self._sync = sync

    def predict(self, token: CancellationToken = CancellationToken.none, version: int = 0) -> Any:
        arguments = ((self.x,), version, self.eager, token)
        if self._sync:
            return self.auto.predict(*arguments)
        return asyncio.run(self.auto.predict_async(*arguments))

    @property
    def asked(self) -> int:
        return len(self.builds.asked)


@pytest.fixture(params=["sync", "async"])
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(request.param == "sync")


def test_the_first_call_after_training_starts_a_build_and_waits_for_nothing(setting: Setting) -> None:
    assert setting.predict() == "eager"
    assert (setting.asked, setting.auto.is_armed) == (0, False)
    setting.module.eval()
    assert setting.auto.is_armed
    assert setting.predict() == "eager"
    assert (setting.asked, setting.auto.is_armed) == (1, False)
    setting.builds.finish(FakePlan("plan"))
    assert [setting.predict(), setting.predict()] == ["plan", "plan"]
    assert setting.host.counters == Counters(fast_hits=1, slow_calls=2, plans_built=1, eager_answers=2)


def test_it_is_off_unless_asked_for() -> None:
    setting = Setting(sync=True, enabled=False)
    assert setting.predict() == "eager"
    setting.module.eval()
    assert setting.predict() == "eager"
    assert (setting.asked, len(setting.module._forward_pre_hooks)) == (0, 0)


def test_a_module_that_was_never_trained_arms_nothing() -> None:
    setting = Setting(sync=True, trained=False)
    for _ in range(2):
        setting.module.eval()
        setting.module(setting.x)
        assert setting.predict() == "eager"
    assert (setting.asked, setting.auto.is_armed) == (0, False)


def test_training_between_two_calls_is_noticed() -> None:
    import torch

    setting = Setting(sync=True, trained=False)
    setting.predict()
    setting.module.train()
    with torch.enable_grad():
        setting.module(setting.x).sum().backward()
    setting.module.eval()
    setting.predict()
    assert setting.asked == 1


def test_it_is_one_shot(setting: Setting) -> None:
    setting.module.eval()
    setting.predict()
    setting.builds.asked[0][2].set_exception(PlanFailed("No such operator."))
    for version in (0, 1):
        setting.module.train()
        setting.module(setting.x)
        setting.module.eval()
        assert setting.predict(version=version) == "eager"
    assert setting.asked == 1
    assert len(setting.module._forward_pre_hooks) == 0


def test_no_plan_answers_for_a_module_that_is_training(setting: Setting) -> None:
    setting.module.eval()
    setting.predict()
    setting.builds.finish(FakePlan("plan"))
    assert setting.predict() == "plan"
    setting.module.train()
    assert setting.predict() == "eager"
    setting.module.eval()
    assert setting.predict() == "plan"


def refusing(setting: Setting, error: BaseException) -> None:
    """Have the host's build raise at once."""

    def build(signature: Any, token: CancellationToken) -> Future[Any]:
        raise error

    setting.host._build = build


@pytest.mark.parametrize("error", [PlanFailed("No such operator."), RuntimeError("unsupported"), ValueError("shape")])
def test_a_build_that_fails_at_once_is_answered_eagerly(setting: Setting, error: Exception) -> None:
    refusing(setting, error)
    setting.module.eval()
    assert [setting.predict(), setting.predict()] == ["eager", "eager"]


FATAL: list[Callable[[], BaseException]] = [
    lambda: OperationCancelled("Enough."),
    MemoryError,
    KeyboardInterrupt,
    lambda: SystemExit(3),
]


@pytest.mark.parametrize("fatal", FATAL)
def test_a_fatal_error_of_a_build_is_raised_at_once(fatal: Callable[[], BaseException]) -> None:
    setting, error = Setting(sync=True), fatal()
    refusing(setting, error)
    setting.module.eval()
    with pytest.raises(type(error)):
        setting.predict()
    assert setting.eager.calls == 0
    assert setting.predict() == "eager"  # once


@pytest.mark.parametrize("fatal", FATAL)
def test_a_fatal_error_in_the_background_is_raised_by_the_next_call_and_once(
    fatal: Callable[[], BaseException],
) -> None:
    setting, error = Setting(sync=True), fatal()
    setting.module.eval()
    setting.predict()
    setting.builds.asked[0][2].set_exception(error)
    with pytest.raises(type(error)):
        setting.predict()
    assert setting.predict() == "eager"


def test_a_build_stopped_because_the_module_changed_is_no_error(setting: Setting) -> None:
    setting.module.eval()
    setting.predict()
    assert setting.predict(version=1) == "eager"
    setting.builds.asked[0][2].set_exception(OperationCancelled())
    assert setting.predict(version=1) == "eager"


def test_a_cancelled_call_spends_nothing(setting: Setting) -> None:
    token = CancellationToken()
    token.cancel("Enough.")
    setting.module.eval()
    with pytest.raises(OperationCancelled, match="Enough"):
        setting.predict(token)
    assert (setting.asked, setting.auto.is_armed) == (0, True)


def test_a_closed_host_refuses(setting: Setting) -> None:
    setting.host.close()
    setting.module.eval()
    for _ in range(2):
        with pytest.raises(HostClosed):
            setting.predict()


def test_closing_takes_the_hook_off_and_disarms() -> None:
    setting = Setting(sync=True)
    setting.auto.close()
    setting.auto.close()
    setting.module.eval()
    assert setting.predict() == "eager"
    assert (setting.asked, len(setting.module._forward_pre_hooks)) == (0, 0)


def copied(module: torch.nn.Module) -> torch.nn.Module:
    return copy.deepcopy(module)


def pickled(module: torch.nn.Module) -> torch.nn.Module:
    again: torch.nn.Module = pickle.loads(pickle.dumps(module))
    return again


@pytest.mark.parametrize("duplicate", [copied, pickled])
def test_a_copy_of_the_module_trains_for_itself(duplicate: Callable[[Any], Any]) -> None:
    setting = Setting(sync=True, trained=False)
    other = duplicate(setting.module).train()
    other(setting.x)
    assert not setting.auto.is_armed
