"""A runner takes the host of the kind of plan that it is asked for, with its own version."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.errors import HostClosed
from engine.hosts.host import CompiledModelHost
from engine.hosts.runner import Runner
from engine.plans.plan import EAGER, OPENVINO_DYNAMIC, OPENVINO_STATIC, Signature
from tests.engine.hosts.test_host import Builds, FakePlan

if TYPE_CHECKING:
    from engine.plans.eager import EagerStream


async def test_a_runner_hands_its_version_to_the_host_of_the_kind(stream: EagerStream) -> None:
    import torch

    builds, x = Builds(), torch.ones(1, 2)
    hosts = {OPENVINO_STATIC: CompiledModelHost("VAE decoder", builds)}
    runner = Runner("VAE decoder", hosts, lambda x: x + 1, stream)
    signature = Signature.of((x,))
    assert torch.equal(await runner.run((x,), OPENVINO_STATIC), x + 1)
    assert not runner.has_plans
    runner.prepare(signature, OPENVINO_STATIC)
    plan = builds.finish(FakePlan("plan"))
    assert (runner.ready(signature, OPENVINO_STATIC), runner.ready(signature, OPENVINO_DYNAMIC)) == (True, False)
    assert runner.has_plans
    assert await runner.run((x,), OPENVINO_STATIC) == "plan"
    assert torch.equal(await runner.run((x,), EAGER), x + 1)
    assert torch.equal(await runner.run((x,), OPENVINO_DYNAMIC), x + 1)  # no host of that kind: eagerly
    runner.version += 1
    assert not runner.ready(signature, OPENVINO_STATIC)
    assert not runner.knows(signature, OPENVINO_STATIC)
    assert plan.closed == 1
    runner.close()
    for kind in (EAGER, OPENVINO_STATIC):
        with pytest.raises(HostClosed):
            await runner.run((x,), kind)


async def test_a_plan_that_has_died_is_known_but_not_ready(stream: EagerStream) -> None:
    import torch

    builds, x = Builds(), torch.ones(1, 2)
    runner = Runner("VAE decoder", {OPENVINO_STATIC: CompiledModelHost("VAE decoder", builds)}, lambda x: x, stream)
    signature = Signature.of((x,))
    runner.prepare(signature, OPENVINO_STATIC)
    builds.finish(FakePlan("plan")).close()
    assert runner.knows(signature, OPENVINO_STATIC)
    assert not runner.ready(signature, OPENVINO_STATIC)
