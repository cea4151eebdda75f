"""The program's own window, driven from inside its loop: everything runs as `app.main` runs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from PySide6.QtGui import QGuiApplication

import app.main
from app import command_line
from app.studio.studio import Studio
from app.window import Window
from engine.engine import Engine
from engine.events import Event, Loading, Step
from engine.jobs import Job
from engine.request import EngineSettings, GenerationRequest


@dataclass(frozen=True)
class Heard:
    """An event without its picture: when it came (`time.perf_counter`), what it was; a step's plan and seconds."""

    at: float
    kind: type[Event]
    what: str = ""
    plan: str = ""
    seconds: float = 0.0


@dataclass
class Driven:
    """What a driver gets, once the window has been painted for the first time."""

    window: Window
    studio: Studio
    painted_at: float
    heard: list[Heard] = field(default_factory=list)

    @property
    def platform(self) -> str:
        return QGuiApplication.platformName()

    async def run(self) -> None:
        """Press Generate and wait until the run has ended. Raises `RuntimeError` where it failed."""
        self.studio.generate()
        await self.until_run_ends()

    async def until_run_ends(self) -> None:
        await until(lambda: not self.studio.running, self.studio.running_changed)
        if self.studio.notice is not None and self.studio.notice.kind == "bad":
            raise RuntimeError(self.studio.notice.sentence)


async def until(condition: Callable[[], bool], *signals: Any) -> None:
    """Wait until the condition holds; it is looked at whenever one of the signals comes."""
    changed = asyncio.Event()

    def wake(*_: object) -> None:
        changed.set()

    for signal in signals:
        signal.connect(wake)
    try:
        while not condition():
            await changed.wait()
            changed.clear()
    finally:
        for signal in signals:
            signal.disconnect(wake)


Drive = Callable[[Driven], Coroutine[Any, Any, None]]


def open_window(
    drive: Drive, at_first_paint: Callable[[Driven], None] = lambda driven: None, model: str = "starter",
    build_plans: bool = True,
) -> int:  # fmt: skip
    """Run the program with its window until `drive` has ended, or has closed the window itself.

    `at_first_paint` is called before anything else hears of the first paint, `drive` on the loop right after.
    """
    heard: list[Heard] = []
    tasks: list[asyncio.Task[None]] = []

    class DrivenEngine(Engine):
        def __init__(self, settings: EngineSettings | None = None, version: str = "") -> None:
            super().__init__(self._with_plans(settings or EngineSettings()), version)

        def configure(self, settings: EngineSettings) -> None:
            super().configure(self._with_plans(settings))

        def submit(self, request: GenerationRequest, on_event: Callable[[Event], None] | None = None) -> Job:
            def hear(event: Event) -> None:
                heard.append(_heard(event))
                if on_event is not None:
                    on_event(event)

            return super().submit(request, hear)

        @staticmethod
        def _with_plans(settings: EngineSettings) -> EngineSettings:
            return settings.model_copy(update={"build_plans": build_plans})

    class DrivenWindow(Window):
        def __init__(self, studio: Studio, *arguments: Any) -> None:
            super().__init__(studio, *arguments)
            self._driven_studio = studio
            self.first_painted.connect(self._begin)

        def _begin(self) -> None:
            driven = Driven(self, self._driven_studio, time.perf_counter(), heard)
            at_first_paint(driven)
            tasks.append(asyncio.get_running_loop().create_task(self._live(driven)))

        async def _live(self, driven: Driven) -> None:
            try:
                await drive(driven)
            finally:
                self.close()

    vars(app.main).update(Engine=DrivenEngine, Window=DrivenWindow, MODEL=model)
    status = command_line.main([])
    for task in tasks:
        if task.done() and not task.cancelled():
            task.result()
    return status


def _heard(event: Event) -> Heard:
    at = time.perf_counter()
    if isinstance(event, Step):
        return Heard(at, Step, plan=event.plan, seconds=event.seconds)
    return Heard(at, type(event), what=event.what if isinstance(event, Loading) else "")
