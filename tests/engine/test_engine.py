"""The whole engine with the bundled model: one face, three ways to ask, the same bits; cancelled, queued or alone."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine.cancellation import CancellationToken
from engine.engine import Engine
from engine.errors import (
    BackendUnavailable,
    HostClosed,
    ModelRefused,
    NonFiniteLatents,
    OperationCancelled,
    RequestRefused,
)
from engine.events import Cancelled, EngineActivity, Event, Failed, Finished, Loading, MadeWith, Step
from engine.pictures.metadata import read_settings
from engine.request import Backend, EngineSettings, GenerationRequest, Sampler, Switch, Weights

REQUEST = GenerationRequest(prompt="a red apple, 3d style", seed=7, steps=6, backend=Backend.EAGER)
COMPILED = REQUEST.model_copy(update={"backend": Backend.OPENVINO})
BOTH = pytest.mark.parametrize("request_", [REQUEST, COMPILED], ids=["eager", "openvino"])


@pytest.fixture(scope="module")
def settings(starter_plans: Path) -> EngineSettings:
    return EngineSettings(plan_folder=starter_plans, build_plans=False, preview_interval=0)


@pytest.fixture(scope="module")
def engine(settings: EngineSettings) -> Iterator[Engine]:
    with Engine(settings) as engine:
        yield engine


@pytest.fixture
def configured(engine: Engine, settings: EngineSettings) -> Iterator[Callable[..., Engine]]:
    """The engine with changed settings, for one test."""

    def change(**changes: object) -> Engine:
        engine.configure(settings.model_copy(update=changes))
        return engine

    yield change
    engine.configure(settings)


def cancel_at(engine: Engine, request: GenerationRequest, moment: Callable[[Event], bool]) -> list[Event]:
    """Run a request and cancel it inside the listener when `moment` says so; returns its events."""
    events: list[Event] = []
    job = engine.submit(request, lambda event: (events.append(event), moment(event) and job_of["job"].cancel()))
    job_of = {"job": job}
    with pytest.raises(OperationCancelled):
        job.result()
    return events


@BOTH
async def test_sync_async_and_submit_make_the_same_bits(engine: Engine, request_: GenerationRequest) -> None:
    by_async = await engine.generate_async(request_)
    by_sync = await asyncio.to_thread(engine.generate, request_)
    by_submit = [event async for event in engine.submit(request_).events][-1]
    assert isinstance(by_submit, Finished)
    assert by_async.image == by_sync.image == by_submit.image
    assert by_async.made_with == by_submit.made_with


@BOTH
def test_after_ten_cancels_the_picture_is_that_of_a_fresh_engine(
    engine: Engine, settings: EngineSettings, request_: GenerationRequest
) -> None:
    for step in range(1, 6):
        cancel_at(engine, request_, lambda event, step=step: event.kind == "step" and event.step == step)
        cancel_at(engine, request_.model_copy(update={"prompt": f"{step}"}), lambda event: event.kind == "decoding")
    with Engine(settings) as fresh:
        assert engine.generate(request_).image == fresh.generate(request_).image


def test_backends_agree_within_two_levels(engine: Engine) -> None:
    eager, compiled = engine.generate(REQUEST), engine.generate(COMPILED)
    assert (eager.made_with.plan, compiled.made_with.plan) == ("eager", "openvino-static")
    assert max(abs(a - b) for a, b in zip(eager.image.pixels, compiled.image.pixels, strict=True)) <= 2


def test_a_new_size_is_served_at_once_by_the_plan_for_every_size(settings: EngineSettings) -> None:
    built = threading.Event()

    def listen(activity: EngineActivity) -> None:
        if len(activity.ready) == 3 and not activity.building:
            built.set()

    wide = COMPILED.model_copy(update={"width": 160, "height": 96})
    with Engine(settings.model_copy(update={"build_plans": True})) as engine:
        first = engine.generate(COMPILED)
        engine.on_activity(listen)
        assert built.wait(300)
        engine.configure(settings)  # builds nothing more
        second = engine.generate(wide)
        again = engine.generate(COMPILED)
        eager = engine.generate(wide.model_copy(update={"backend": Backend.EAGER}))
    plans = [finished.made_with.plan for finished in (first, second, again, eager)]
    assert plans == ["openvino-static", "openvino-dynamic", "openvino-static", "eager"]
    assert first.image == again.image
    assert max(abs(a - b) for a, b in zip(second.image.pixels, eager.image.pixels, strict=True)) <= 2


def test_a_number_of_threads_is_used_from_the_next_picture(configured: Callable[..., Engine]) -> None:
    engine = configured(threads=1)
    one = engine.generate(REQUEST)
    assert engine._stream.submit(torch_threads, CancellationToken.none).result(60) == 1
    engine.configure(engine.settings.model_copy(update={"threads": 0}))
    all_ = engine.generate(REQUEST)
    assert engine._stream.submit(torch_threads, CancellationToken.none).result(60) >= 1
    assert max(abs(a - b) for a, b in zip(one.image.pixels, all_.image.pixels, strict=True)) <= 2


def torch_threads() -> int:
    import torch

    return torch.get_num_threads()


def test_a_backend_that_can_not_be_used_here_is_refused_with_what_it_needs(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(BackendUnavailable, match=r"C\+\+ compiler"):
        engine.generate(REQUEST.model_copy(update={"backend": Backend.INDUCTOR}))


def test_a_load_that_was_broken_off_leaves_no_weights_behind(settings: EngineSettings) -> None:
    import torch

    def weights() -> int:
        return sum(isinstance(found, torch.nn.Parameter) for found in gc.get_objects())

    def cancel_while_loading() -> None:
        with Engine(settings) as engine:
            cancel_at(engine, REQUEST, lambda event: isinstance(event, Loading) and event.what == "unet")

    cancel_while_loading()
    gc.collect()
    before = weights()
    gc.disable()  # what only the collector would find stays for long
    try:
        cancel_while_loading()
        assert weights() <= before
    finally:
        gc.enable()


def test_queued_jobs_finish_in_order_with_whole_ordered_events(engine: Engine) -> None:
    heard: list[Event] = []
    jobs = [engine.submit(REQUEST.model_copy(update={"seed": seed, "steps": 3}), heard.append) for seed in range(8)]
    results = [job.result() for job in jobs]
    assert [result.job for result in results] == [job.id for job in jobs]
    for job in jobs:
        kinds = [event.kind for event in heard if event.job == job.id]
        assert kinds == ["queued", "step", "step", "step", "decoding", "finished"]
        assert [event.step for event in heard if isinstance(event, Step) and event.job == job.id] == [1, 2, 3]
    assert [event.job for event in heard if event.kind == "finished"] == [job.id for job in jobs]
    assert results[0].image == engine.generate(REQUEST.model_copy(update={"seed": 0, "steps": 3})).image


def test_previews_show_the_picture_coming(engine: Engine) -> None:
    steps: list[Event] = []
    finished = engine.generate(REQUEST, on_event=lambda event: event.kind == "step" and steps.append(event))
    previews = [event.preview for event in steps if isinstance(event, Step)]
    assert len(previews) == REQUEST.steps
    assert all(preview is not None and (preview.width, preview.height) == (16, 16) for preview in previews)
    last = previews[-1]
    assert last is not None
    corner, middle = last.pixels[:3], last.pixels[(8 * 16 + 8) * 3 :][:3]
    assert min(corner) > 200, "the background of the last preview is nearly white"
    assert middle[0] > middle[2] + 40, "the apple in its middle is red"
    assert finished.image.width == 128


def test_previews_can_be_off(configured: Callable[..., Engine]) -> None:
    events: list[Event] = []
    configured(previews=False).generate(REQUEST, on_event=events.append)
    assert all(event.preview is None for event in events if isinstance(event, Step))


def test_a_cancelled_token_raises_before_any_work(engine: Engine) -> None:
    token = CancellationToken()
    token.cancel("not now")
    heard: list[Event] = []
    with pytest.raises(OperationCancelled, match="not now"):
        engine.generate(REQUEST, token, heard.append)
    with pytest.raises(OperationCancelled, match="not now"):
        asyncio.run(engine.generate_async(REQUEST, token, heard.append))
    assert heard == []


def test_a_queued_job_is_cancelled_without_waiting_for_its_turn(engine: Engine) -> None:
    heard: list[Event] = []
    running = engine.submit(REQUEST.model_copy(update={"steps": 30}), heard.append)
    waiting = engine.submit(REQUEST, heard.append)
    waiting.cancel("changed my mind")
    with pytest.raises(OperationCancelled):
        waiting.result()
    running.result()
    kinds = [(event.job, event.kind) for event in heard]
    assert kinds.index((waiting.id, "cancelled")) < kinds.index((running.id, "finished"))


@pytest.mark.parametrize("moment", ["loading", "step", "decoding"])
def test_cancel_ends_a_run_in_every_phase(settings: EngineSettings, moment: str) -> None:
    with Engine(settings) as engine:
        events = cancel_at(engine, REQUEST, lambda event: event.kind == moment)
        assert isinstance(events[-1], Cancelled)
        assert not any(isinstance(event, Finished) for event in events)
        assert engine.is_idle
        assert engine.generate(REQUEST).image.width == 128


def test_cancel_ends_a_build_and_its_processes(settings: EngineSettings, tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    with Engine(settings.model_copy(update={"plan_folder": tmp_path / "plans"})) as engine:
        cancel_at(engine, COMPILED, lambda event: event.kind == "building")
        assert set(psutil.Process().children(recursive=True)) <= before
        assert not [place for place in (tmp_path / "plans").glob("*") if not place.name.startswith(".")]


def test_cancelling_the_awaiting_task_cancels_the_picture(engine: Engine) -> None:
    async def run() -> list[str]:
        kinds: list[str] = []
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear(event: Event) -> None:
            kinds.append(event.kind)
            if event.kind == "step":
                loop.call_soon_threadsafe(started.set)

        task = asyncio.create_task(engine.generate_async(REQUEST.model_copy(update={"steps": 100}), on_event=hear))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return kinds

    kinds = asyncio.run(run())
    engine.generate(REQUEST)
    assert "finished" not in kinds


@pytest.mark.parametrize("sampler", list(Sampler))
def test_every_sampler_reports_every_step(engine: Engine, sampler: Sampler) -> None:
    steps: list[int] = []
    request = REQUEST.model_copy(update={"sampler": sampler, "steps": 5})
    engine.generate(request, on_event=lambda event: event.kind == "step" and steps.append(event.step))
    assert steps == [1, 2, 3, 4, 5]


def test_a_saved_picture_holds_its_request(configured: Callable[..., Engine], tmp_path: Path) -> None:
    finished = configured(output_folder=tmp_path).generate(COMPILED)
    assert finished.path is not None
    assert list(tmp_path.iterdir()) == [finished.path]
    assert read_settings(finished.path) == (COMPILED, finished.made_with)


def test_a_picture_that_cannot_be_saved_is_still_there(configured: Callable[..., Engine], tmp_path: Path) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("not a folder")
    finished = configured(output_folder=blocked).generate(REQUEST)
    assert finished.path is None
    assert finished.save_error
    assert str(blocked) in finished.save_error
    assert len(finished.image.pixels) == 128 * 128 * 3


@pytest.mark.parametrize(("name", "error"), [("no/such/folder", ModelRefused), ("starter", RequestRefused)])
def test_what_cannot_be_made_is_refused_and_the_engine_stays(engine: Engine, name: str, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        engine.generate(REQUEST.model_copy(update={"model": name, "width": 120}))
    assert ("128×128" if name == "starter" else name) in str(caught.value)
    assert engine.generate(REQUEST).image.width == 128


def test_tiling_during_a_run_takes_effect_at_its_decode(configured: Callable[..., Engine]) -> None:
    engine = configured(vae_tiling=Switch.OFF)

    def flip(event: Event) -> None:
        if event.kind == "step" and event.step == 3:
            configured(vae_tiling=Switch.ON, vae_slicing=Switch.ON)

    made_with = engine.generate(REQUEST, on_event=flip).made_with
    assert (made_with.vae_tiling, made_with.vae_slicing) == (True, True)
    configured()
    assert engine.generate(REQUEST).made_with.vae_tiling is False


def test_latents_that_are_no_numbers_are_reported_and_never_saved(
    configured: Callable[..., Engine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.hosts.host import CompiledModelHost

    predict: Any = CompiledModelHost.predict_async

    async def broken(self: CompiledModelHost, *arguments: Any, **named: Any) -> Any:
        answer = await predict(self, *arguments, **named)
        return answer * float("nan") if self.name == "noise predictor" else answer

    engine = configured(output_folder=tmp_path)
    monkeypatch.setattr(CompiledModelHost, "predict_async", broken)
    with pytest.raises(NonFiniteLatents, match=r"Step 1 of 6: 1,024 of 1,024 values .*float32"):
        engine.generate(REQUEST)
    assert list(tmp_path.iterdir()) == []


def test_running_out_of_memory_is_answered_with_tiles_then_a_sentence(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.vae.vae import Vae

    decode, tried = Vae.decode_by, []

    async def cramped(self: Vae, *arguments: Any) -> Any:
        tried.append(self.tiling)
        if not self.tiling or always:
            raise MemoryError
        return await decode(self, *arguments)

    monkeypatch.setattr(Vae, "decode_by", cramped)
    always = False
    assert engine.generate(REQUEST).made_with.vae_tiling
    always = True
    failed: list[Event] = []
    with pytest.raises(Exception, match=r"isn't enough memory"):
        engine.generate(REQUEST, on_event=failed.append)
    assert isinstance(failed[-1], Failed)
    assert tried == [False, True, False, True]
    monkeypatch.undo()
    assert engine.generate(REQUEST).image.width == 128


def test_a_closed_engine_refuses_and_leaves_nothing(settings: EngineSettings) -> None:
    engine = Engine(settings)
    heard: list[Event] = []
    job = engine.submit(COMPILED.model_copy(update={"steps": 150}), heard.append)
    engine.close()
    engine.close()
    with pytest.raises(OperationCancelled):
        job.result()
    with pytest.raises(HostClosed):
        engine.submit(REQUEST)
    assert isinstance(heard[-1], Cancelled)


# Weights


def test_changed_weights_count_from_the_next_picture_which_names_them(
    configured: Callable[..., Engine], tiny_model: Path, tmp_path: Path
) -> None:
    request = GenerationRequest(prompt="a pear", model=str(tiny_model), width=32, height=32, steps=2)
    compiled = request.model_copy(update={"backend": Backend.OPENVINO})
    eager = request.model_copy(update={"backend": Backend.EAGER})
    made = {
        (weights, asked.backend): configured(weights=weights, output_folder=tmp_path).generate(asked)
        for weights in (Weights.INT8, Weights.HALF, Weights.FULL)
        for asked in (compiled, eager)
    }
    for (weights, backend), finished in made.items():
        # what no plan answers is never in int8
        ran = Weights.HALF if (weights, backend) == (Weights.INT8, Backend.EAGER) else weights
        assert finished.path is not None
        assert read_settings(finished.path)[1].weights is finished.made_with.weights is ran
        assert finished.made_with.plan.startswith(backend)
    pixels = {key: finished.image.pixels for key, finished in made.items()}
    assert pixels[Weights.INT8, Backend.EAGER] == pixels[Weights.HALF, Backend.EAGER]


def test_a_picture_made_before_weights_were_named_was_made_with_full_ones() -> None:
    assert MadeWith.model_validate({"plan": "eager", "batch": 2}).weights is Weights.FULL
