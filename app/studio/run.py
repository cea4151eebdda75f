"""One press of Generate: its jobs, followed in order."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.studio.progress import Progress, ProgressReader
from engine.events import Cancelled, Event, Failed, Finished, RgbImage, Step
from engine.request import GenerationRequest

if TYPE_CHECKING:
    from engine.engine import Engine
    from engine.jobs import Job

log = logging.getLogger(__name__)


class Run(QObject):
    """Submits the requests and tells what becomes of them. A failed picture takes the rest of the run with it.

    `ended` comes exactly once, after everything else: with None, or with the sentence of a failure.
    """

    progressed = Signal(object)
    previewed = Signal(object)
    finished = Signal(object)
    ended = Signal(object)

    def __init__(self, engine: Engine, requests: list[GenerationRequest], parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self._requests = requests
        self._jobs: list[Job] = []
        self._reader = ProgressReader(len(requests))
        self._failure: str | None = None
        self.cancelled = False

    @property
    def requests(self) -> list[GenerationRequest]:
        return self._requests

    def start(self) -> asyncio.Task[None]:
        """Submit, and follow the jobs in a task of the running loop. Raises what `Engine.submit` raises."""
        self._jobs = [self._engine.submit(request) for request in self._requests]
        return asyncio.get_running_loop().create_task(self._follow())

    def cancel(self) -> None:
        """Cancel whatever isn't finished. Pictures that are finished stay."""
        if self.cancelled:
            return
        self.cancelled = True
        self._cancel_jobs()

    def _cancel_jobs(self) -> None:
        # the last one first: otherwise the engine would begin the next job just to see it cancelled
        for job in reversed(self._jobs):
            job.cancel()

    async def _follow(self) -> None:
        try:
            for index, job in enumerate(self._jobs):
                self._reader.start_picture(index)
                async for event in job.events:
                    self._take(event)
        except Exception:
            log.exception("following a run failed")
            self._cancel_jobs()
            self._failure = self.tr("Something went wrong in the window; the log says what.")
        finally:
            self.ended.emit(self._failure)

    def _take(self, event: Event) -> None:
        match event:
            case Finished():
                self.finished.emit(event)
            case Failed(message=message):
                if self._failure is None and not self.cancelled:
                    self._failure = message
                    self._cancel_jobs()
            case Cancelled():
                pass
            case _ if not self.cancelled and self._failure is None:
                progress: Progress = self._reader.read(event)
                self.progressed.emit(progress)
                if isinstance(event, Step) and event.preview is not None:
                    preview: RgbImage = event.preview
                    self.previewed.emit(preview)
