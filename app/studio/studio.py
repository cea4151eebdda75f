"""The studio's model: what is shown, what runs, what can be done. Drives the engine; knows no widget."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from app.observable import Observable
from app.studio.form import Form
from app.studio.progress import Progress
from app.studio.results import Result, Results
from app.studio.run import Run
from engine.errors import SafelightError
from engine.events import EngineActivity, Finished, RgbImage
from engine.request import GenerationRequest

if TYPE_CHECKING:
    from engine.engine import Engine

log = logging.getLogger(__name__)


class Action(Enum):
    """The one thing that a notice offers to do."""

    NONE = ""
    TRY_AGAIN = "try again"
    SAVE_AS = "save as"
    UNDO = "undo"


@dataclass(frozen=True)
class Notice:
    """A sentence for the bar under the prompt. `kind` is "bad", "warn" or "note"."""

    kind: str
    sentence: str
    action: Action = Action.NONE


@dataclass(frozen=True)
class Shown:
    """What the canvas shows: a preview or a finished picture; `dimmed` once its run was cancelled."""

    image: RgbImage
    preview: bool = False
    dimmed: bool = False


class Studio(QObject):
    """Use it on a thread whose asyncio loop runs. `close` before the engine is closed."""

    running = Observable(False)
    running_changed = Signal(bool)
    progress = Observable(Progress())
    progress_changed = Signal(object)
    shown = Observable[Shown | None](None)
    shown_changed = Signal(object)
    notice = Observable[Notice | None](None)
    notice_changed = Signal(object)
    activity = Observable(EngineActivity())
    activity_changed = Signal(object)
    save_as_wanted = Signal(object)

    def __init__(self, engine: Engine, form: Form, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._engine = engine
        self.form = form
        self.results = Results(self)
        self._run: Run | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._follows = True
        self._last_preview: Shown | None = None
        self._warned_of = 0
        self._before_restore: tuple[GenerationRequest, bool, int] | None = None
        self._unsaved: Result | None = None
        self._loop = asyncio.get_running_loop()
        self._stop_listening = engine.on_activity(self._on_engine_thread)

    # Generate and cancel

    def generate(self) -> None:
        """Start a run of the form's count of pictures, unless one is going on."""
        if not self.running:
            self._start(self.form.take_requests())

    def generate_example(self, prompt: str) -> None:
        """Put an example into the form and make it."""
        self.form.prompt = prompt
        self.generate()

    def cancel(self) -> None:
        """Cancel the run, shown at once; the engine's own end follows by itself."""
        run, self._run = self._run, None
        if run is None:
            return
        run.cancel()
        self._stop_showing(dim=True)

    def generate_or_cancel(self) -> None:
        self.cancel() if self.running else self.generate()

    def _start(self, requests: list[GenerationRequest]) -> None:
        self.notice = None
        run = Run(self._engine, requests, self)
        run.progressed.connect(lambda progress: self._on_progress(run, progress))
        run.previewed.connect(lambda image: self._on_preview(run, image))
        run.finished.connect(lambda finished: self._on_finished(run, finished))
        run.ended.connect(lambda failure: self._on_ended(run, failure))
        try:
            task = run.start()
        except SafelightError as error:
            run.cancel()
            self.notice = Notice("bad", str(error))
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._run = run
        self._follows = True
        self._last_preview = None
        self.results.selected = None
        self.running = True

    def _on_progress(self, run: Run, progress: Progress) -> None:
        if run is self._run:
            self.progress = progress

    def _on_preview(self, run: Run, image: RgbImage) -> None:
        if run is self._run:
            self._last_preview = Shown(image, preview=True)
            if self._follows:
                self.shown = self._last_preview

    def _on_finished(self, run: Run, finished: Finished) -> None:
        result = self.results.add(finished)
        current = run is self._run or (run.cancelled and self._run is None)
        if current and self._follows:
            self.results.selected = result
            self.shown = Shown(result.image)
        self._last_preview = None
        if finished.save_error is not None:
            self._unsaved = result
            self.notice = Notice("warn", finished.save_error, Action.SAVE_AS)

    def _on_ended(self, run: Run, failure: str | None) -> None:
        if run is self._run:
            self._run = None
            self._stop_showing(dim=failure is not None)
            if failure is not None:
                self.notice = Notice("bad", failure, Action.TRY_AGAIN)
        run.deleteLater()

    def _stop_showing(self, dim: bool) -> None:
        self.running = False
        self.progress = Progress()
        if dim and self.shown is not None and self.shown.preview:
            self.shown = Shown(self.shown.image, preview=True, dimmed=True)

    # Results

    def choose(self, result: Result) -> None:
        """Show a result and give its settings back to the form. What was in the form can be had back by `undo`."""
        if self.results.selected is not result:
            self.results.selected = result
        self._follows = False
        self.shown = Shown(result.image)
        self._restore(result.request, self.tr("Settings of seed {seed} restored.").format(seed=result.request.seed))

    def step_through_results(self, offset: int) -> None:
        """Go to the next or previous result; past the newest, back to the run that is going on."""
        result = self.results.neighbour(offset)
        if result is not None and result is not self.results.selected:
            self.choose(result)
        elif offset > 0 and self._run is not None and not self._follows:
            self.follow()

    def follow(self) -> None:
        """Show the run that is going on again."""
        self._follows = True
        self.results.selected = None
        if self._last_preview is not None:
            self.shown = self._last_preview

    async def restore_from_file(self, path: Path) -> None:
        """Give the settings in a picture file to the form; where there are none, say why."""
        from engine.pictures.metadata import UNKNOWN_PLAN, read_settings

        try:
            request, made_with = await asyncio.to_thread(read_settings, path)
        except SafelightError as error:
            self.notice = Notice("bad", str(error))
            return
        sentence = self.tr("Settings of {name} restored.")
        if made_with.plan == UNKNOWN_PLAN:  # another program's picture
            sentence = self.tr("Settings of {name} restored as far as Safelight knows them; look them over.")
        self._restore(request, sentence.format(name=path.name))

    def _restore(self, request: GenerationRequest, sentence: str) -> None:
        form = self.form
        now = form.request()
        made = any(now == result.request.model_copy(update={"seed": now.seed}) for result in self.results.items)
        before = now, form.random_seed, form.count
        form.restore(request)
        if made or not now.prompt or form.request() == now:
            self._forget_restore()
            return
        self._before_restore = before
        self.notice = Notice("note", sentence, Action.UNDO)

    def undo(self) -> None:
        """Take back the last restore."""
        if self._before_restore is None:
            return
        request, random_seed, count = self._before_restore
        self.form.restore(request)
        self.form.random_seed = random_seed
        self.form.count = count
        self._forget_restore()

    def _forget_restore(self) -> None:
        self._before_restore = None
        if self.notice is not None and self.notice.action is Action.UNDO:
            self.notice = None

    # Notices and saving

    def act(self) -> None:
        """Do what the notice offers."""
        notice = self.notice
        if notice is None:
            return
        self.notice = None
        match notice.action:
            case Action.TRY_AGAIN:
                self._try_again()
            case Action.SAVE_AS:
                self.save_as_wanted.emit(self._unsaved)
                self.notice = notice
            case Action.UNDO:
                self.undo()

    def dismiss(self) -> None:
        self.notice = None

    def _try_again(self) -> None:
        if not self.running:
            self._start([self.form.request()])

    async def save_as(self, result: Result, path: Path) -> None:
        """Write a result to a file that the user named."""
        from engine.pictures.files import write_whole
        from engine.pictures.metadata import encode_png

        def write() -> None:
            write_whole(path, encode_png(result.image, result.request, result.made_with))

        try:
            await asyncio.to_thread(write)
        except SafelightError as error:
            self._unsaved = result
            self.notice = Notice("warn", str(error), Action.SAVE_AS)
            return
        self.results.mark_saved(result, path)
        if self.notice is not None and self.notice.action is Action.SAVE_AS and self._unsaved is result:
            self.notice = None

    def may_close(self) -> bool:
        """Whether the program may end: not at the first asking while pictures are in memory only."""
        unsaved = [result for result in self.results.items if result.path is None]
        if not unsaved or len(unsaved) == self._warned_of:
            return True
        self._warned_of = len(unsaved)
        self._unsaved = unsaved[-1]
        sentence = self.tr("Pictures not saved yet: {number}. Save them, or close again to let them go.")
        sentence = sentence.format(number=len(unsaved))
        self.notice = Notice("warn", sentence, Action.SAVE_AS)
        return False

    def close(self) -> None:
        """Cancel what runs and stop listening; the engine is closed by its owner."""
        self._stop_listening()
        run, self._run = self._run, None
        if run is not None:
            run.cancel()
        self.running = False

    def _on_engine_thread(self, activity: EngineActivity) -> None:
        try:
            self._loop.call_soon_threadsafe(self._take_activity, activity)
        except RuntimeError:  # the window has gone
            return

    def _take_activity(self, activity: EngineActivity) -> None:
        self.activity = activity
