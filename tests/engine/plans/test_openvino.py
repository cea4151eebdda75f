"""Real plans of a tiny model: built in child processes, as exact as eager, stopped at once, mended when they break."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.cancellation import CancellationToken
from engine.errors import BackendUnavailable, HostClosed, OperationCancelled, PlanFailed
from engine.hosts.host import CompiledModelHost
from engine.models.description import describe
from engine.plans import builder as builder_module
from engine.plans import process_plan
from engine.plans.builder import PlanBuilder, PlanSource
from engine.plans.eager import EagerPlan, EagerStream
from engine.plans.openvino import OpenVinoPlan
from engine.plans.plan import OPENVINO_DYNAMIC, OPENVINO_STATIC, Plan, Signature
from engine.plans.wire import ChildProcess
from engine.request import Backend
from tests.engine.tiny_model import CONTEXT, WIDTH

MINUTES = 300  # seconds, for what takes seconds
COMPONENTS = ("text encoder", "noise predictor", "VAE encoder", "VAE decoder")


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.fixture
def no_child_left() -> Iterator[None]:
    before = children()
    yield
    assert children() <= before


def source(folder: Path, component: str) -> PlanSource:
    from engine.models.components import Component

    return PlanSource(folder, component, Component(component).folder)


def inputs_of(component: str) -> tuple[Any, ...]:
    """Sizes that are none of those that the converter traced with, odd ones among them."""
    import torch

    draw = torch.Generator().manual_seed(1)
    if component == "text encoder":
        return torch.randint(0, 50, (1, CONTEXT), generator=draw), torch.ones(1, CONTEXT, dtype=torch.int64)
    if component == "noise predictor":
        latents = torch.randn(2, 4, 10, 14, generator=draw)
        return latents, torch.tensor(601.0), torch.randn(2, 2 * CONTEXT, WIDTH, generator=draw)
    if component == "VAE encoder":
        return (torch.rand(1, 3, 36, 44, generator=draw) * 2 - 1,)
    return (torch.randn(1, 4, 15, 21, generator=draw),)


def module_of(folder: Path, component: str) -> Any:
    from engine.models.components import Component, as_function
    from engine.models.load import load_module

    part = Component(component)
    return as_function(part, load_module(folder, part.folder))


@pytest.fixture(scope="module")
def plans(tiny_model: Path, tiny_builder: PlanBuilder) -> Iterator[dict[str, OpenVinoPlan]]:
    """A plan of each component, built as the program builds them."""
    futures = {
        component: tiny_builder.build(
            source(tiny_model, component), OPENVINO_STATIC, Signature.of(inputs_of(component)), CancellationToken.none
        )
        for component in COMPONENTS
    }
    built: dict[str, Any] = {component: future.result(MINUTES) for component, future in futures.items()}
    yield built
    for plan in built.values():
        plan.close()


@pytest.fixture
def decoder(tiny_model: Path, tiny_builder: PlanBuilder, plans: object) -> Iterator[OpenVinoPlan]:
    """A plan of the VAE decoder for one test, which may break it."""
    signature = Signature.of(inputs_of("VAE decoder"))
    future = tiny_builder.build(source(tiny_model, "VAE decoder"), OPENVINO_STATIC, signature, CancellationToken.none)
    plan: Any = future.result(MINUTES)
    yield plan
    plan.close()


# Answers


@pytest.mark.parametrize("component", COMPONENTS)
def test_a_plan_answers_as_the_eager_module_does(
    plans: dict[str, OpenVinoPlan], tiny_model: Path, stream: EagerStream, component: str
) -> None:
    inputs = inputs_of(component)
    expected = EagerPlan(module_of(tiny_model, component), stream).execute(inputs)
    answer = plans[component].execute(inputs)
    assert (answer.shape, answer.dtype) == (expected.shape, expected.dtype)
    assert ((answer - expected).abs().max() / expected.abs().max()).item() <= 1e-4
    assert plans[component].kind == OPENVINO_STATIC


async def test_both_ways_of_asking_agree_bit_for_bit(plans: dict[str, OpenVinoPlan]) -> None:
    import torch

    inputs = inputs_of("noise predictor")
    awaited = await plans["noise predictor"].execute_async(inputs)
    assert torch.equal(awaited, plans["noise predictor"].execute(inputs))


@pytest.mark.parametrize("component", COMPONENTS)
def test_one_open_plan_serves_every_size(
    tiny_builder: PlanBuilder, tiny_model: Path, stream: EagerStream, component: str
) -> None:
    import torch

    inputs = inputs_of(component)
    future = tiny_builder.build(
        source(tiny_model, component), OPENVINO_DYNAMIC, Signature.of(inputs).opened, CancellationToken.none
    )
    plan = future.result(MINUTES)
    eager = EagerPlan(module_of(tiny_model, component), stream)
    larger = tuple(torch.cat([x, x], dim=0) if x.dim() else x for x in inputs)
    for given in (inputs, larger, inputs):
        expected, answer = eager.execute(given), plan.execute(given)
        assert answer.shape == expected.shape
        assert ((answer - expected).abs().max() / expected.abs().max()).item() <= 1e-4
    assert plan.kind == OPENVINO_DYNAMIC
    plan.close()


def test_an_input_that_is_as_before_is_not_sent_again_and_one_that_changed_in_place_is(
    plans: dict[str, OpenVinoPlan], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    plan = plans["noise predictor"]
    latents, timestep, prompt = inputs_of("noise predictor")
    sent: list[list[bool]] = []
    send = plan._process.wire.send
    monkeypatch.setattr(
        plan._process.wire, "send", lambda *m: (sent.append([x is not None for x in m[2]]), send(*m))
    )  # fmt: skip
    first = plan.execute((latents, timestep, prompt))
    assert torch.equal(plan.execute((latents.clone(), timestep, prompt)), first)
    prompt.mul_(2)
    doubled = plan.execute((latents, timestep, prompt))
    assert not torch.equal(doubled, first)
    assert torch.equal(doubled, plan.execute(tuple(x.clone() for x in (latents, timestep, prompt))))
    assert sent == [[True] * 3, [True, False, False], [True, False, True], [True] * 3]


async def test_calls_at_once_are_all_answered(plans: dict[str, OpenVinoPlan]) -> None:
    import torch

    plan, (latents,) = plans["VAE decoder"], inputs_of("VAE decoder")
    answers = await asyncio.gather(*(plan.execute_async((latents * number,)) for number in range(6)))
    for number, answer in enumerate(answers):
        assert torch.equal(answer, plan.execute((latents * number,)))


def test_a_transposed_input_is_read_by_its_values(plans: dict[str, OpenVinoPlan]) -> None:
    import torch

    plan, (latents,) = plans["VAE decoder"], inputs_of("VAE decoder")
    assert torch.equal(plan.execute((latents.to(memory_format=torch.channels_last),)), plan.execute((latents,)))


def test_the_converted_model_is_kept_for_the_next_program(
    plans: object, tiny_model: Path, tiny_builder: PlanBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    class Counted(ChildProcess):
        def __init__(self, job: str) -> None:
            started.append(job)
            super().__init__(job)

    monkeypatch.setattr(builder_module, "ChildProcess", Counted)
    again = PlanBuilder(tiny_builder._store._folder)
    signature = Signature((((1, 4, 6, 6), "float32"),))
    plan = again.build(source(tiny_model, "VAE decoder"), OPENVINO_STATIC, signature, CancellationToken.none).result(
        MINUTES
    )
    assert plan.is_alive
    assert started == []
    plan.close()
    again.close()


# Refusals


@pytest.mark.usefixtures("no_child_left")
def test_what_is_no_model_is_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "model.xml").write_text("<net", encoding="utf-8")
    with pytest.raises(PlanFailed, match=r"OpenVINO can't compile model\.xml: \w+"):
        OpenVinoPlan(tmp_path / "model.xml", Signature((((1,), "float32"),)))


@pytest.mark.usefixtures("no_child_left")
def test_a_signature_that_the_model_can_not_take_is_refused(
    plans: object, tiny_model: Path, tiny_builder: PlanBuilder
) -> None:
    shapes = (((1, 4, 8, 8), "float32"), ((1, 4, 8, 8), "float32"))
    future = tiny_builder.build(
        source(tiny_model, "VAE decoder"), OPENVINO_STATIC, Signature(shapes), CancellationToken.none
    )
    with pytest.raises(PlanFailed, match="can't compile"):
        future.result(MINUTES)


def test_inputs_of_another_shape_fail_and_the_host_answers_eagerly(
    decoder: OpenVinoPlan, tiny_model: Path, stream: EagerStream
) -> None:
    import torch

    with pytest.raises(PlanFailed, match="failed while running"):
        decoder.execute((torch.zeros(1, 4, 5, 5),))
    assert decoder.execute(inputs_of("VAE decoder")).shape == (1, 3, 30, 42)  # a failure of one call is no more


def test_a_token_cancelled_beforehand_starts_nothing(decoder: OpenVinoPlan, tmp_path: Path) -> None:
    token, before = CancellationToken(), children()
    token.cancel("too late")
    with pytest.raises(OperationCancelled, match="too late"):
        decoder.execute(inputs_of("VAE decoder"), token)
    with pytest.raises(OperationCancelled, match="too late"):
        OpenVinoPlan(tmp_path / "nowhere.xml", Signature(()), token)
    assert children() == before


# Breaking


def as_host(plan: OpenVinoPlan, signature: Signature) -> CompiledModelHost:
    def build(_signature: Signature, _token: CancellationToken) -> Future[Plan]:
        future: Future[Plan] = Future()
        future.set_result(plan)
        return future

    host = CompiledModelHost("VAE decoder", build)
    host.prepare(signature, 0)
    return host


def stop(plan: OpenVinoPlan) -> None:
    """Halt the plan's process, so that a call that is sent now doesn't end by itself."""
    os.kill(plan._process.pid, signal.SIGSTOP)


def waiting_calls(plan: OpenVinoPlan, number: int) -> None:
    """Return once so many calls wait for the plan's process."""
    while len(plan._calls) < number:
        pass


needs_signals = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="stopping a process is POSIX's")


def test_a_killed_process_fails_the_call_and_the_host_answers_eagerly(
    decoder: OpenVinoPlan, tiny_model: Path, stream: EagerStream
) -> None:
    import torch

    inputs = inputs_of("VAE decoder")
    eager = EagerPlan(module_of(tiny_model, "VAE decoder"), stream)
    host = as_host(decoder, Signature.of(inputs))
    host.predict(inputs, 0, eager)
    psutil.Process(decoder._process.pid).kill()
    decoder._process._process.wait()
    with pytest.raises(PlanFailed):
        decoder.execute(inputs)
    assert torch.equal(host.predict(inputs, 0, eager), eager.execute(inputs))
    assert host.counters.eager_answers == 1
    assert not decoder.is_alive
    host.close()


@needs_signals
def test_a_process_killed_in_the_middle_of_a_call_poisons_its_plan(
    decoder: OpenVinoPlan, tiny_model: Path, stream: EagerStream, in_thread: Callable[..., Future[Any]]
) -> None:
    import torch

    inputs = inputs_of("VAE decoder")
    eager = EagerPlan(module_of(tiny_model, "VAE decoder"), stream)
    host = as_host(decoder, Signature.of(inputs))
    stop(decoder)
    running = in_thread(lambda: host.predict(inputs, 0, eager))
    waiting_calls(decoder, 1)
    os.kill(decoder._process.pid, signal.SIGKILL)
    assert torch.equal(running.result(60), eager.execute(inputs))
    assert (host.counters.poisoned, host.counters.eager_answers) == (1, 1)
    host.close()


@needs_signals
def test_closing_ends_a_call_that_runs(decoder: OpenVinoPlan, in_thread: Callable[..., Future[Any]]) -> None:
    stop(decoder)
    running = in_thread(lambda: decoder.execute(inputs_of("VAE decoder")))
    waiting_calls(decoder, 1)
    pid = decoder._process.pid
    decoder.close()
    with pytest.raises(HostClosed):
        running.result(60)
    assert not psutil.pid_exists(pid)
    with pytest.raises(HostClosed):
        decoder.execute(inputs_of("VAE decoder"))
    decoder.close()


# Cancelling


@needs_signals
@pytest.mark.parametrize("way", ["execute", "execute_async", "task"])
def test_an_inference_that_does_not_stop_is_ended_with_its_process(
    decoder: OpenVinoPlan, in_thread: Callable[..., Future[Any]], way: str
) -> None:
    inputs, token = inputs_of("VAE decoder"), CancellationToken()

    async def run() -> Any:
        running = asyncio.create_task(decoder.execute_async(inputs, token))
        await asyncio.to_thread(waiting_calls, decoder, 1)
        (running if way == "task" else token).cancel()
        return await running

    stop(decoder)
    if way == "execute":
        running = in_thread(lambda: decoder.execute(inputs, token))
        waiting_calls(decoder, 1)
        token.cancel()
    else:
        running = in_thread(lambda: asyncio.run(run()))
    with pytest.raises(asyncio.CancelledError if way == "task" else OperationCancelled):
        running.result(60)
    assert not decoder.is_alive
    assert not psutil.pid_exists(decoder._process.pid)


@needs_signals
def test_only_the_cancelled_call_is_told_that_it_was_cancelled(
    decoder: OpenVinoPlan, in_thread: Callable[..., Future[Any]]
) -> None:
    inputs, token = inputs_of("VAE decoder"), CancellationToken()
    stop(decoder)
    cancelled = in_thread(lambda: decoder.execute(inputs, token))
    waiting_calls(decoder, 1)
    other = in_thread(lambda: decoder.execute(inputs))
    waiting_calls(decoder, 2)
    token.cancel()
    with pytest.raises(OperationCancelled):
        cancelled.result(60)
    with pytest.raises(PlanFailed):
        other.result(60)


async def test_a_cancel_at_any_moment_leaves_the_plan_as_it_was(decoder: OpenVinoPlan) -> None:
    import torch

    inputs = inputs_of("VAE decoder")
    expected = decoder.execute(inputs)
    cancelled = 0
    for moment in range(30):
        token = CancellationToken()
        running = asyncio.create_task(decoder.execute_async(inputs, token))
        for _ in range(moment // 10):
            await asyncio.sleep(0)
        threading.Thread(target=token.cancel).start()
        try:
            assert torch.equal(await running, expected)
        except OperationCancelled:
            cancelled += 1
        if not decoder.is_alive:  # the machine was too busy to stop in time; that is allowed, and seen by `is_alive`
            return
        assert torch.equal(await decoder.execute_async(inputs), expected)
    assert cancelled > 0


# Building


class Watched(ChildProcess):
    """Tells the test of each child, before the builder goes on."""

    told: Callable[[str, ChildProcess], None]

    def __init__(self, job: str) -> None:
        super().__init__(job)
        type(self).told(job, self)


@pytest.fixture
def builder() -> Iterator[PlanBuilder]:
    builder = PlanBuilder(None)
    yield builder
    builder.close()


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("moment", ["started", "working"])
def test_cancelling_a_conversion_ends_its_process(
    builder: PlanBuilder, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    token, started = CancellationToken(), threading.Event()
    pids: list[int] = []

    def told(job: str, child: ChildProcess) -> None:
        pids.append(child.pid)
        if moment == "started":
            token.cancel("Enough.")
        else:
            started.set()

    monkeypatch.setattr(Watched, "told", staticmethod(told), raising=False)
    monkeypatch.setattr(builder_module, "ChildProcess", Watched)
    future = builder.build(
        source(tiny_model, "VAE decoder"), OPENVINO_STATIC, Signature((((1, 4, 8, 8), "float32"),)), token
    )
    if moment == "working":
        assert started.wait(60)
        token.cancel("Enough.")
    with pytest.raises(OperationCancelled):
        future.result(60)
    assert len(pids) == 1
    assert not psutil.pid_exists(pids[0])
    assert list(builder._store._folder.iterdir()) == []


@pytest.mark.usefixtures("no_child_left")
@pytest.mark.parametrize("moment", ["started", "working"])
def test_cancelling_a_compile_ends_its_process_and_can_be_tried_again(
    plans: object, tiny_builder: PlanBuilder, tiny_model: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    token, started = CancellationToken(), threading.Event()

    def told(job: str, child: ChildProcess) -> None:
        if moment == "started":
            token.cancel("Enough.")
        else:
            started.set()

    monkeypatch.setattr(Watched, "told", staticmethod(told), raising=False)
    monkeypatch.setattr(process_plan, "ChildProcess", Watched)
    where, signature = source(tiny_model, "VAE decoder"), Signature((((1, 4, 7, 7), "float32"),))
    host = CompiledModelHost(
        "VAE decoder", lambda signature, token: tiny_builder.build(where, OPENVINO_STATIC, signature, token)
    )
    future = host.prepare(signature, 0, token)
    if moment == "working":
        assert started.wait(60)
        token.cancel("Enough.")
    with pytest.raises(OperationCancelled):
        future.result(60)
    monkeypatch.undo()
    assert host.prepare(signature, 0).result(MINUTES).is_alive
    host.close()


@pytest.mark.usefixtures("no_child_left")
def test_closing_ends_what_is_built_and_what_waits(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started = threading.Event()
    heard: list[tuple[str, ...]] = []
    monkeypatch.setattr(Watched, "told", staticmethod(lambda job, child: started.set()), raising=False)
    monkeypatch.setattr(builder_module, "ChildProcess", Watched)
    builder = PlanBuilder(None, heard.append)
    folder = builder._store._folder
    signature = Signature((((1, 4, 8, 8), "float32"),))
    futures = [
        builder.build(source(tiny_model, component), OPENVINO_STATIC, signature, CancellationToken.none)
        for component in COMPONENTS
    ]
    assert started.wait(60)
    assert builder.is_building
    builder.close()
    builder.close()
    for future in futures:
        with pytest.raises(OperationCancelled):
            future.result(0)
    assert not folder.exists()
    assert not builder.is_building
    assert heard[3] == COMPONENTS
    assert heard[-1] == ()
    with pytest.raises(HostClosed):
        builder.build(source(tiny_model, "VAE decoder"), OPENVINO_STATIC, signature, CancellationToken.none)


@pytest.mark.usefixtures("no_child_left")
def test_a_model_that_can_not_be_converted_is_refused_with_a_reason(builder: PlanBuilder, changed_model: Path) -> None:
    (changed_model / "vae" / "config.json").write_text("{", encoding="utf-8")
    future = builder.build(
        source(changed_model, "VAE decoder"),
        OPENVINO_STATIC,
        Signature((((1, 4, 8, 8), "float32"),)),
        CancellationToken.none,
    )
    with pytest.raises(PlanFailed, match=r"can't convert the VAE decoder: ModelRefused: .*config\.json"):
        future.result(MINUTES)


@pytest.mark.usefixtures("no_child_left")
def test_a_converter_that_dies_is_a_plan_that_failed(
    builder: PlanBuilder, tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        Watched, "told", staticmethod(lambda job, child: psutil.Process(child.pid).kill()), raising=False
    )
    monkeypatch.setattr(builder_module, "ChildProcess", Watched)
    future = builder.build(
        source(tiny_model, "VAE decoder"),
        OPENVINO_STATIC,
        Signature((((1, 4, 8, 8), "float32"),)),
        CancellationToken.none,
    )
    with pytest.raises(PlanFailed, match="ended unexpectedly"):
        future.result(60)


@pytest.mark.usefixtures("no_child_left")
def test_a_failing_listener_does_not_end_the_builder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def listen(names: tuple[str, ...]) -> None:
        raise ZeroDivisionError(names)

    builder = PlanBuilder(None, listen)
    for _ in range(2):
        future = builder.build(PlanSource(tmp_path, "VAE decoder", "vae"), OPENVINO_STATIC, Signature(()), cancelled())
        with pytest.raises(OperationCancelled):
            future.result(60)
    builder.close()
    assert "ZeroDivisionError" in caplog.text


def cancelled() -> CancellationToken:
    token = CancellationToken()
    token.cancel()
    return token


def test_changed_weights_are_another_plan(tiny_model: Path, changed_model: Path, builder: PlanBuilder) -> None:
    def key(folder: Path, component: str = "VAE decoder") -> str:
        return builder._key(source(folder, component), CancellationToken.none)

    assert key(tiny_model) == key(changed_model)  # the same content, wherever it lies
    assert key(tiny_model) != key(tiny_model, "VAE encoder")
    weights = changed_model / "vae" / "diffusion_pytorch_model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert key(tiny_model) != key(changed_model)
    with pytest.raises(OperationCancelled):
        PlanBuilder(None)._key(source(tiny_model, "VAE decoder"), cancelled())


# A model that waits for its plans


@pytest.mark.usefixtures("plans")
async def test_a_wait_for_plans_that_others_asked_for_ends_with_the_token(
    tiny_model: Path, stream: EagerStream
) -> None:
    """The build goes on: it was asked for in the background. The wait doesn't."""
    import torch

    from engine.models.model import load

    asked: list[Future[Plan]] = []

    class NeverReady:
        def build(self, source: PlanSource, kind: str, signature: Signature, token: CancellationToken) -> Future[Plan]:
            asked.append(Future())
            return asked[-1]

    never: Any = NeverReady()
    token = CancellationToken()
    model = await load(
        describe(str(tiny_model)), stream, never, "cpu", torch.float32, lambda what, fraction: None, token
    )
    needed = model.signatures(64, 64, 1, 2)
    model.prepare(needed, Backend.OPENVINO)
    heard: list[tuple[str, float]] = []
    waiting = asyncio.create_task(
        model.wait_for_plans(needed, Backend.OPENVINO, token, lambda what, done: heard.append((what, done)))
    )
    await asyncio.sleep(0)
    token.cancel("Enough.")
    with pytest.raises(OperationCancelled, match="Enough"):
        await waiting
    assert heard == [("text encoder", 0)]
    assert len(asked) == 5  # three of this size, and two for every size: prompts have only one
    waiting = asyncio.create_task(
        model.wait_for_plans(needed, Backend.OPENVINO, CancellationToken(), lambda what, done: None)
    )
    await asyncio.sleep(0)
    asked[0].set_exception(PlanFailed("No such operator."))
    with pytest.raises(BackendUnavailable, match="No such operator"):
        await waiting
    model.close()
