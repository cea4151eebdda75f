"""The studio's model, driven by a fake engine, without a window."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.studio.studio import Action, Shown, Studio
from engine.errors import PictureNotSaved, PictureUnreadable
from engine.events import Decoding, EngineActivity, MadeWith
from engine.request import GenerationRequest
from tests.app.fake_engine import MADE_WITH, FakeEngine, image_of


async def settle(until: Callable[[], bool] = lambda: False, turns: int = 200) -> None:
    """Let the loop run until something holds, or for a number of turns."""
    for _ in range(turns):
        if until():
            return
        await asyncio.sleep(0)


async def make_one(studio: Studio, engine: FakeEngine, **changes: object) -> None:
    studio.generate()
    engine.jobs[-1].finish(**changes)
    await settle(lambda: not studio.running)


async def test_a_run_goes_from_generate_to_a_result(studio: Studio, engine: FakeEngine) -> None:
    shown: list[Shown] = []
    studio.shown_changed.connect(shown.append)
    studio.form.prompt = "a red apple"
    studio.form.steps = 4
    studio.generate()
    assert studio.running
    assert engine.jobs[0].request.prompt == "a red apple"
    engine.jobs[0].play_whole_run()
    await settle(lambda: not studio.running)
    assert shown[-1] == Shown(image_of(200))
    assert [result.request for result in studio.results.items] == [engine.jobs[0].request]
    assert studio.results.selected is studio.results.items[0]
    assert studio.progress.text == ""


async def test_previews_are_shown_as_they_come(studio: Studio, engine: FakeEngine) -> None:
    studio.generate()
    engine.jobs[0].step(1, preview=10)
    await settle()
    assert studio.shown == Shown(image_of(10), preview=True)
    assert studio.progress.text.startswith("Step 1 of 30")
    engine.jobs[0].step(2)
    await settle()
    assert studio.shown == Shown(image_of(10), preview=True)
    engine.jobs[0].play(Decoding(job=1))
    await settle()
    assert studio.progress.solid


async def test_generate_during_a_run_does_nothing(studio: Studio, engine: FakeEngine) -> None:
    studio.generate()
    studio.generate()
    assert len(engine.jobs) == 1


async def test_cancel_is_seen_at_once_and_dims_the_preview(studio: Studio, engine: FakeEngine) -> None:
    studio.generate()
    engine.jobs[0].step(1, preview=10)
    await settle()
    studio.cancel()
    assert not studio.running
    assert studio.shown == Shown(image_of(10), preview=True, dimmed=True)
    assert engine.jobs[0].cancels == 1
    await settle()
    assert studio.notice is None
    assert not studio.results.items


async def test_after_a_cancel_steps_that_were_on_their_way_change_nothing(studio: Studio, engine: FakeEngine) -> None:
    studio.generate()
    job = engine.jobs[0]
    job.ended = True  # the engine hasn't noticed the cancel yet
    studio.cancel()
    job.step(5, preview=50)
    await settle()
    assert studio.shown is None
    assert studio.progress.text == ""


async def test_a_new_run_can_start_before_the_old_one_has_ended(studio: Studio, engine: FakeEngine) -> None:
    studio.generate()
    engine.jobs[0].ended = True
    studio.cancel()
    studio.generate()
    engine.jobs[1].step(1, preview=20)
    engine.jobs[0].step(9, preview=90)
    engine.jobs[0].ended = False
    engine.jobs[0].cancel()
    await settle()
    assert studio.running
    assert studio.shown == Shown(image_of(20), preview=True)


async def test_a_picture_that_was_finished_before_the_cancel_arrived_is_kept(
    studio: Studio, engine: FakeEngine
) -> None:
    studio.generate()
    engine.jobs[0].ended = True
    studio.cancel()
    engine.jobs[0].finish(77)
    await settle(lambda: bool(studio.results.items))
    assert studio.results.items[0].image == image_of(77)


async def test_several_pictures_are_made_in_order_and_cancelled_together(studio: Studio, engine: FakeEngine) -> None:
    studio.form.fix_seed(5)
    studio.form.count = 3
    studio.generate()
    assert [job.request.seed for job in engine.jobs] == [5, 6, 7]
    engine.jobs[0].finish(1)
    engine.jobs[1].step(3, preview=30)
    await settle(lambda: studio.progress.text.startswith("Picture 2 of 3"))
    assert studio.running
    studio.cancel()
    await settle()
    assert [job.cancels for job in engine.jobs] == [1, 1, 1]
    assert len(studio.results.items) == 1


async def test_a_failure_is_one_sentence_and_leaves_the_form_alone(studio: Studio, engine: FakeEngine) -> None:
    studio.form.prompt = "a red apple"
    studio.form.count = 2
    studio.generate()
    before = studio.form.request()
    engine.jobs[0].fail("There is not enough memory for 4096×4096.")
    await settle(lambda: not studio.running)
    assert studio.notice is not None
    assert studio.notice.sentence == "There is not enough memory for 4096×4096."
    assert studio.notice.action is Action.TRY_AGAIN
    assert engine.jobs[1].cancels == 1
    assert studio.form.request() == before


async def test_trying_again_makes_the_same_picture(studio: Studio, engine: FakeEngine) -> None:
    studio.generate()
    engine.jobs[0].fail("The disk fell off.")
    await settle(lambda: not studio.running)
    studio.act()
    assert engine.jobs[1].request == engine.jobs[0].request
    assert studio.notice is None


async def test_a_request_that_the_engine_refuses_is_said(studio: Studio, engine: FakeEngine) -> None:
    engine.refusal = "Starter can't make that."
    studio.generate()
    assert not studio.running
    assert studio.notice is not None
    assert studio.notice.sentence == "Starter can't make that."


async def test_a_picture_that_could_not_be_saved_stays_with_save_as(
    studio: Studio, engine: FakeEngine, tmp_path: Path
) -> None:
    await make_one(studio, engine, path=None, save_error="The disk is full.")
    assert studio.notice is not None
    assert studio.notice.action is Action.SAVE_AS
    wanted: list[object] = []
    studio.save_as_wanted.connect(wanted.append)
    studio.act()
    assert wanted == studio.results.items
    assert studio.notice is not None  # the file dialog can still be called off
    path = tmp_path / "kept.png"
    await studio.save_as(studio.results.items[0], path)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert studio.results.items[0].path == path
    assert studio.notice is None


async def test_pictures_in_memory_only_are_warned_of_before_the_end_once_each(
    studio: Studio, engine: FakeEngine, tmp_path: Path
) -> None:
    assert studio.may_close()
    await make_one(studio, engine, path=None, save_error="The disk is full.")
    studio.dismiss()
    assert not studio.may_close()
    assert studio.notice is not None
    assert (studio.notice.kind, studio.notice.action) == ("warn", Action.SAVE_AS)
    assert studio.may_close()  # asked a second time: let them go
    await make_one(studio, engine, path=None, save_error="The disk is full.")
    assert not studio.may_close()
    for number, result in enumerate(studio.results.items):
        await studio.save_as(result, tmp_path / f"{number}.png")
    assert studio.may_close()


async def test_another_programs_picture_is_said_to_be_taken_in_part(
    studio: Studio, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = GenerationRequest(prompt="a fox"), MadeWith(plan="unknown", batch=1)
    monkeypatch.setattr("engine.pictures.metadata.read_settings", lambda path: foreign)
    studio.form.prompt = "a red apple"
    await studio.restore_from_file(tmp_path / "fox.png")
    assert studio.form.prompt == "a fox"
    assert studio.notice is not None
    assert "as far as Safelight knows them" in studio.notice.sentence


async def test_save_as_that_fails_is_said(
    studio: Studio, engine: FakeEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise PictureNotSaved("The folder is read-only.")

    monkeypatch.setattr("engine.pictures.files.write_whole", fail)
    await make_one(studio, engine)
    await studio.save_as(studio.results.items[0], tmp_path / "x.png")
    assert studio.notice is not None
    assert studio.notice.sentence == "The folder is read-only."
    assert studio.results.items[0].path is None


async def test_a_result_gives_its_settings_back_and_is_shown(studio: Studio, engine: FakeEngine) -> None:
    studio.form.prompt = "a red apple"
    await make_one(studio, engine, shade=1)
    studio.form.prompt = "a dog"
    await make_one(studio, engine, shade=2)
    first = studio.results.items[0]
    studio.choose(first)
    assert studio.form.take_requests() == [first.request]
    assert studio.shown == Shown(image_of(1))
    assert studio.results.selected is first
    assert studio.notice is None  # what was in the form is in the strip, so there is nothing to lose


async def test_what_was_typed_can_be_had_back_after_a_restore(studio: Studio, engine: FakeEngine) -> None:
    await make_one(studio, engine)
    studio.form.prompt = "typed for a long time"
    studio.form.count = 3
    studio.choose(studio.results.items[0])
    assert studio.form.prompt == ""
    assert studio.notice is not None
    assert studio.notice.action is Action.UNDO
    studio.act()
    assert studio.form.prompt == "typed for a long time"
    assert studio.form.count == 3
    assert studio.form.random_seed
    assert studio.notice is None


async def test_results_are_walked_through_and_past_the_newest_comes_the_run(studio: Studio, engine: FakeEngine) -> None:
    for shade in (1, 2):
        await make_one(studio, engine, shade=shade)
    studio.generate()
    engine.jobs[-1].step(1, preview=30)
    await settle()
    studio.step_through_results(-1)
    assert studio.shown == Shown(image_of(2))
    studio.step_through_results(-1)
    studio.step_through_results(-1)
    assert studio.shown == Shown(image_of(1))
    engine.jobs[-1].step(2, preview=40)
    await settle()
    assert studio.shown == Shown(image_of(1))  # a look back isn't torn away by the run
    studio.step_through_results(+1)
    studio.step_through_results(+1)
    assert studio.shown == Shown(image_of(40), preview=True)


async def test_a_dropped_picture_gives_its_settings(
    studio: Studio, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    request = GenerationRequest(prompt="from a file", seed=8)
    readers: list[str] = []

    def read(_: Path) -> tuple[GenerationRequest, object]:
        readers.append(threading.current_thread().name)
        return request, MADE_WITH

    monkeypatch.setattr("engine.pictures.metadata.read_settings", read)
    await studio.restore_from_file(tmp_path / "picture.png")
    assert studio.form.take_requests() == [request]
    assert readers != [threading.main_thread().name]


async def test_a_dropped_file_without_settings_is_said(
    studio: Studio, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def read(path: Path) -> None:
        raise PictureUnreadable(f"{path.name} holds no settings.")

    monkeypatch.setattr("engine.pictures.metadata.read_settings", read)
    before = studio.form.request()
    await studio.restore_from_file(tmp_path / "picture.png")
    assert studio.notice is not None
    assert studio.notice.sentence == "picture.png holds no settings."
    assert studio.form.request() == before


async def test_an_example_makes_a_picture_at_once(studio: Studio, engine: FakeEngine) -> None:
    studio.generate_example("a red apple, 3d style")
    assert engine.jobs[0].request.prompt == "a red apple, 3d style"


async def test_activity_comes_over_from_the_engine_s_thread(studio: Studio, engine: FakeEngine) -> None:
    activity = EngineActivity(model="Starter", building=("UNet",))
    thread = threading.Thread(target=engine.tell, args=(activity,))
    thread.start()
    thread.join()
    await settle(lambda: studio.activity == activity)
    assert studio.activity == activity


async def test_closing_cancels_the_run_and_stops_listening(studio: Studio, engine: FakeEngine) -> None:
    studio.form.count = 2
    studio.generate()
    studio.close()
    assert [job.cancels for job in engine.jobs] == [1, 1]
    assert engine.listeners == 0
    await settle()
    assert studio.notice is None
