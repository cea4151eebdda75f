"""An engine with the real one's face that plays scripted events: no model, no torch, no threads of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from engine.errors import RequestRefused
from engine.events import (
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
from engine.request import EngineSettings, GenerationRequest

MADE_WITH = MadeWith(plan="eager", batch=2)


def image_of(shade: int, width: int = 8, height: int = 8) -> RgbImage:
    return RgbImage(width=width, height=height, pixels=bytes([shade % 256]) * (width * height * 3))


class FakeJob:
    """A test plays its events, all at once with `finish` or one by one with `play`."""

    def __init__(self, number: int, request: GenerationRequest) -> None:
        self.id = number
        self.request = request
        self.events = EventStream()
        self.cancels = 0
        self.ended = False

    def play(self, event: Event) -> None:
        self.events.put(event)

    def step(self, step: int, preview: int | None = None, seconds: float = 0.1, plan: str = "eager") -> None:
        self.play(
            Step(
                job=self.id, step=step, steps=self.request.steps, plan=plan, seconds=seconds,
                preview=None if preview is None else image_of(preview),
            )
        )  # fmt: skip

    def finish(self, shade: int = 200, **changes: Any) -> None:
        self.ended = True
        fields = {
            "job": self.id,
            "request": self.request,
            "made_with": MADE_WITH,
            "image": image_of(shade),
            "seconds": 1.0,
        }
        self.play(Finished(**(fields | changes)))

    def fail(self, sentence: str) -> None:
        self.ended = True
        self.play(Failed(job=self.id, message=sentence))

    def play_whole_run(self) -> None:
        self.play(Queued(job=self.id, ahead=0))
        self.play(Loading(job=self.id, what="UNet", fraction=0.5))
        for step in range(1, self.request.steps + 1):
            self.step(step, preview=step)
        self.play(Decoding(job=self.id))
        self.finish()

    def cancel(self, reason: str | None = None) -> None:
        self.cancels += 1
        if not self.ended:
            self.ended = True
            self.play(Cancelled(job=self.id, reason=reason))


class FakeEngine:
    """`jobs` are those submitted, in order; `refusal`, when set, is what `submit` raises."""

    def __init__(self, settings: EngineSettings | None = None, version: str = "") -> None:
        self.settings = settings or EngineSettings()
        self.jobs: list[FakeJob] = []
        self.warmed: list[str] = []
        self.refusal: str | None = None
        self.closed = 0
        self._numbers: Iterator[int] = itertools.count(1)
        self._listeners: list[Callable[[EngineActivity], None]] = []

    def configure(self, settings: EngineSettings) -> None:
        self.settings = settings

    def warm_up(self, model: str = "starter") -> None:
        self.warmed.append(model)

    def submit(self, request: GenerationRequest) -> FakeJob:
        if self.refusal is not None:
            raise RequestRefused(self.refusal)
        job = FakeJob(next(self._numbers), request)
        self.jobs.append(job)
        return job

    def on_activity(self, listener: Callable[[EngineActivity], None]) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, activity: EngineActivity) -> None:
        for listener in list(self._listeners):
            listener(activity)

    @property
    def listeners(self) -> int:
        return len(self._listeners)

    def close(self) -> None:
        self.closed += 1
        for job in self.jobs:
            job.cancel()
