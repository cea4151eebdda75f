"""torch.compile in a child process: as exact as eager, cancelled at once, its artefacts in a folder of its own."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import OperationCancelled, PlanFailed
from engine.plans.builder import PlanBuilder, PlanSource
from engine.plans.eager import EagerPlan, EagerStream
from engine.plans.inductor import InductorPlan, why_unavailable
from engine.plans.plan import INDUCTOR, Signature

MINUTES = 300
pytestmark = pytest.mark.skipif(why_unavailable() is not None, reason=str(why_unavailable()))


def inputs() -> tuple[Any, ...]:
    import torch

    return (torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(1)),)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inductor-plans")


@pytest.fixture(scope="module")
def plan(tiny_model: Path, folder: Path) -> Iterator[Any]:
    builder = PlanBuilder(folder)
    source = PlanSource(tiny_model, "VAE decoder", "vae")
    plan = builder.build(source, INDUCTOR, Signature.of(inputs()), CancellationToken.none).result(MINUTES)
    yield plan
    plan.close()
    builder.close()


def test_it_answers_as_the_eager_module_does(plan: InductorPlan, tiny_model: Path, stream: EagerStream) -> None:
    from engine.models.components import Component, as_function
    from engine.models.load import load_module

    expected = EagerPlan(as_function(Component.VAE_DECODER, load_module(tiny_model, "vae")), stream).execute(inputs())
    answer = plan.execute(inputs())
    assert plan.kind == INDUCTOR
    assert ((answer - expected).abs().max() / expected.abs().max()).item() <= 1e-4


async def test_both_ways_of_asking_agree_bit_for_bit(plan: InductorPlan) -> None:
    import torch

    assert torch.equal(await plan.execute_async(inputs()), plan.execute(inputs()))


def test_its_artefacts_lie_where_only_this_user_may_go(plan: InductorPlan, folder: Path) -> None:
    assert plan.is_alive
    cache = folder / ".inductor"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert any(cache.rglob("*"))
    assert not [entry for entry in folder.iterdir() if entry != cache], "nothing of it is in the plan store"


async def test_cancelling_a_build_ends_its_process(tiny_model: Path, tmp_path: Path) -> None:
    token = CancellationToken()
    signature = Signature((((1, 4, 10, 6), "float32"),))
    building = asyncio.create_task(
        asyncio.to_thread(InductorPlan, tiny_model, "VAE decoder", signature, tmp_path / "cache", "cpu", token)
    )
    await asyncio.sleep(0)
    token.cancel()
    with pytest.raises(OperationCancelled):
        await building


def test_a_plan_for_every_size_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(PlanFailed, match="fixed sizes"):
        InductorPlan(tiny_model, "VAE decoder", Signature.of(inputs()).opened, tmp_path)
