"""Events are plain data; the stream carries every one of them, in order, to another thread's loop."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.events import (
    EVENT,
    Building,
    Cancelled,
    Decoding,
    EngineActivity,
    Event,
    EventStream,
    Failed,
    Finished,
    Loading,
    MadeWith,
    Queued,
    RgbImage,
    Step,
)
from tests.engine.test_request import REQUESTS, TEXT

NUMBERS = st.integers(0, 2**31)
FRACTIONS = st.floats(0, 1)
SECONDS = st.floats(0, 1e9)
IMAGES = st.builds(RgbImage, width=NUMBERS, height=NUMBERS, pixels=st.binary(max_size=300))
PATHS = st.text("abc äß漢/ ", min_size=1, max_size=20).map(Path)
MADE_WITH = st.builds(
    MadeWith, plan=TEXT, batch=NUMBERS, vae_tiling=st.booleans(), vae_slicing=st.booleans(), safelight=TEXT, torch=TEXT
)
EVENTS: dict[type, st.SearchStrategy[Event]] = {
    Queued: st.builds(Queued, job=NUMBERS, ahead=NUMBERS),
    Loading: st.builds(Loading, job=NUMBERS, what=TEXT, fraction=FRACTIONS),
    Building: st.builds(Building, job=NUMBERS, what=TEXT, fraction=FRACTIONS),
    Step: st.builds(
        Step, job=NUMBERS, step=NUMBERS, steps=NUMBERS, plan=TEXT, seconds=SECONDS, preview=st.none() | IMAGES
    ),
    Decoding: st.builds(Decoding, job=NUMBERS),
    Finished: st.builds(
        Finished, job=NUMBERS, request=REQUESTS, made_with=MADE_WITH, image=IMAGES, path=st.none() | PATHS,
        save_error=st.none() | TEXT, seconds=SECONDS,
    ),
    Cancelled: st.builds(Cancelled, job=NUMBERS, reason=st.none() | TEXT),
    Failed: st.builds(Failed, job=NUMBERS, message=TEXT),
}  # fmt: skip


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_every_event_survives_json_and_pickling(kind: type) -> None:
    @given(EVENTS[kind])
    def check(event: Event) -> None:
        for back in (EVENT.validate_json(EVENT.dump_json(event)), pickle.loads(pickle.dumps(event))):
            assert type(back) is kind
            assert back == event

    check()


def test_pixels_travel_as_base64() -> None:
    image = RgbImage(width=1, height=1, pixels=bytes([0, 255, 128]))
    assert json.loads(image.model_dump_json())["pixels"] == "AP-A"


def test_an_event_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValidationError):
        EVENT.validate_json('{"kind": "exploded", "job": 1}')


def test_an_event_can_not_be_changed() -> None:
    with pytest.raises(ValidationError):
        Decoding(job=1).job = 2


def test_what_the_engine_does_survives_json() -> None:
    activity = EngineActivity(device="CPU", model="Starter", building=("noise predictor",), ready=("text encoder",))
    assert EngineActivity.model_validate_json(activity.model_dump_json()) == activity


END = Cancelled(job=1)


def step(number: int, preview: bool = True) -> Step:
    image = RgbImage(width=1, height=1, pixels=number.to_bytes(3, "big")) if preview else None
    return Step(job=1, step=number, steps=1000, plan="eager", seconds=0.1, preview=image)


def drain(stream: EventStream) -> list[Event]:
    async def read() -> list[Event]:
        return [event async for event in stream]

    return asyncio.run(read())


def numbers(events: list[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, Step)]


def previewed(events: list[Event]) -> list[int]:
    return [event.step for event in events if isinstance(event, Step) and event.preview is not None]


def test_a_late_reader_gets_everything_and_the_newest_preview() -> None:
    stream = EventStream()
    sent: list[Event] = [Queued(job=1, ahead=0), *(step(number) for number in range(1000)), Decoding(job=1), END]
    for event in sent:
        stream.put(event)
    got = drain(stream)
    assert [type(event) for event in got] == [type(event) for event in sent]
    assert numbers(got) == list(range(1000))
    assert previewed(got) == [999]
    assert got[1000] == step(999)


def test_a_step_without_a_preview_takes_none_away() -> None:
    stream = EventStream()
    for event in (step(1), step(2, preview=False), END):
        stream.put(event)
    assert previewed(drain(stream)) == [1]


@given(st.lists(st.sampled_from(["preview", "plain", "read"]), max_size=60))
def test_whatever_the_pace_nothing_is_lost_and_one_preview_at_most_waits(actions: list[str]) -> None:
    async def check() -> None:
        stream, sent = EventStream(), 0
        got: list[Event] = []
        reader = stream.__aiter__()
        newest: int | None = None
        for action in actions:
            if action != "read":
                stream.put(step(sent, preview=action == "preview"))
                newest = sent if action == "preview" else newest
                sent += 1
            elif len(got) < sent:
                event = await reader.__anext__()
                assert isinstance(event, Step)
                assert (event.preview is not None) == (event.step == newest)
                got.append(event)
        stream.put(END)
        got += [event async for event in reader]
        assert numbers(got) == list(range(sent))
        assert got[-1] == END

    asyncio.run(check())


def test_a_waiting_reader_on_another_thread_gets_every_event_of_a_fast_writer() -> None:
    stream = EventStream()
    got: list[Event] = []
    reader = threading.Thread(target=lambda: got.extend(drain(stream)))
    reader.start()
    for number in range(5000):
        stream.put(step(number))
    stream.put(END)
    reader.join()
    assert numbers(got) == list(range(5000))
    assert previewed(got)[-1] == 4999
    assert got[-1] == END


def test_events_of_several_writers_all_arrive() -> None:
    stream = EventStream()

    def write(first: int) -> None:
        for number in range(first, first + 500):
            stream.put(step(number, preview=number % 2 == 0))

    got: list[Event] = []
    reader = threading.Thread(target=lambda: got.extend(drain(stream)))
    writers = [threading.Thread(target=write, args=(first,)) for first in range(0, 2000, 500)]
    for thread in (reader, *writers):
        thread.start()
    for thread in writers:
        thread.join()
    stream.put(END)
    reader.join()
    assert sorted(numbers(got)) == list(range(2000))
    for first in range(0, 2000, 500):
        mine = [number for number in numbers(got) if first <= number < first + 500]
        assert mine == sorted(mine)


def test_a_cancelled_reader_loses_nothing_for_the_next() -> None:
    async def check() -> list[Event]:
        stream = EventStream()

        async def read() -> list[Event]:
            return [event async for event in stream]

        first = asyncio.create_task(read())
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        stream.put(step(1))
        stream.put(END)
        return await read()

    assert asyncio.run(check()) == [step(1), END]


def test_a_reader_whose_loop_is_closed_holds_up_nobody() -> None:
    stream = EventStream()
    loop = asyncio.new_event_loop()
    reader = stream.__aiter__()

    async def read() -> Event:
        return await reader.__anext__()

    waiting = loop.create_task(read())
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    stream.put(step(1))
    stream.put(END)
    assert not waiting.done()
    assert drain(stream) == [step(1), END]


def test_iteration_ends_at_the_last_event() -> None:
    stream = EventStream()
    stream.put(Failed(job=1, message="It broke."))
    stream.put(step(1))
    assert drain(stream) == [Failed(job=1, message="It broke.")]
