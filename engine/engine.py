"""The engine's face: ask for pictures from any thread or loop; one engine thread makes them, one after the other."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

from engine.cancellation import CancellationToken
from engine.errors import BackendUnavailable, HostClosed, OperationCancelled, SafelightError
from engine.events import (
    Building,
    Cancelled,
    Decoding,
    EngineActivity,
    Event,
    Finished,
    Loading,
    MadeWith,
    Queued,
    RgbImage,
    Step,
)
from engine.importing import import_torch
from engine.jobs import Job
from engine.models.description import ModelDescription, describe
from engine.pictures.files import save_picture
from engine.plans.backends import why_unavailable
from engine.plans.builder import PlanBuilder
from engine.plans.eager import EagerStream, unless_cancelled
from engine.request import Backend, EngineSettings, GenerationRequest, Weights
from engine.thread import EngineThread

if TYPE_CHECKING:
    import torch

    from engine.generation.generate import Painter
    from engine.models.model import Model

log = logging.getLogger(__name__)

CLOSE_SECONDS = 1.5
_LOADING_STEP = 0.02  # least progress between two Loading events


class Engine:
    """Makes pictures. Construction is cheap and imports no torch; `warm_up`, or the first picture, does.

    All methods may be called from any thread but the engine's own. `close` (or leaving the `with` block) cancels what
    runs; afterwards everything raises `HostClosed`.
    """

    def __init__(self, settings: EngineSettings | None = None, version: str = "") -> None:
        """`version` is the program's, for the pictures' metadata."""
        self._settings = settings or EngineSettings()
        self._version = version
        self._thread = EngineThread()
        self._stream = EagerStream()
        self._saver = ThreadPoolExecutor(1, thread_name_prefix="safelight-save")
        self._builder: PlanBuilder | None = None
        self._painter: Painter | None = None
        self._jobs: deque[Job] = deque()
        self._running: Job | None = None
        self._loading = asyncio.Lock()
        self._life = CancellationToken()
        self._imported: Future[None] | None = None
        self._import_lock = threading.Lock()
        self._threads = 0
        self._default_threads = 0
        self._activity = EngineActivity()
        self._activity_lock = threading.Lock()
        self._listeners: list[Callable[[EngineActivity], None]] = []

    # Asking

    @property
    def settings(self) -> EngineSettings:
        return self._settings

    @property
    def is_idle(self) -> bool:
        """Whether no job runs or waits and no plan is being built."""
        return self._running is None and not self._jobs and not (self._builder and self._builder.is_building)

    def configure(self, settings: EngineSettings) -> None:
        """Replace the settings. VAE switches act at the next decode, also of a picture that is being made."""
        self._settings = settings

    def warm_up(self, model: str = "starter") -> None:
        """Get ready in the background: import torch, load the model, load or build its plans. Returns at once."""
        self._check_open()
        self._thread.start(self._warm_up(model))

    def submit(self, request: GenerationRequest, on_event: Callable[[Event], None] | None = None) -> Job:
        """Queue a picture and return at once. `on_event` hears every event, in order, on the engine thread."""
        self._check_open()
        job = Job(request, on_event)
        self._thread.call(self._enqueue, job)
        return job

    def generate(
        self,
        request: GenerationRequest,
        token: CancellationToken = CancellationToken.none,
        on_event: Callable[[Event], None] | None = None,
    ) -> Finished:
        """Make a picture and wait for it. Raises `OperationCancelled` or the `SafelightError` it failed with."""
        token.raise_if_cancelled()
        if self._thread.is_current:
            raise RuntimeError("Engine.generate would wait for its own thread; use generate_async")
        job = self.submit(request, on_event)
        unregister = token.on_cancel(lambda: job.cancel(token.reason))
        try:
            return job.result()
        except KeyboardInterrupt:
            job.cancel()
            raise
        finally:
            unregister()

    async def generate_async(
        self,
        request: GenerationRequest,
        token: CancellationToken = CancellationToken.none,
        on_event: Callable[[Event], None] | None = None,
    ) -> Finished:
        """`generate` for any asyncio loop. Cancelling the awaiting task cancels the picture."""
        token.raise_if_cancelled()
        job = self.submit(request, on_event)
        unregister = token.on_cancel(lambda: job.cancel(token.reason))
        try:
            return await asyncio.shield(asyncio.wrap_future(job.future))
        except asyncio.CancelledError:
            job.cancel()
            raise
        finally:
            unregister()

    def on_activity(self, listener: Callable[[EngineActivity], None]) -> Callable[[], None]:
        """Hear, on an engine thread, what the engine does beside its jobs; now and at every change."""
        self._listeners.append(listener)
        listener(self._activity)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def close(self) -> None:
        """Cancel every job, end threads and child processes. Safe to call twice."""
        if self._life.is_cancelled:
            return
        self._life.cancel("The program is closing.")
        shutdown = self._thread.start(self._shut_down())
        try:
            shutdown.result(CLOSE_SECONDS)
        except TimeoutError:
            log.warning("the engine was still busy when it was closed")
        self._stream.close()
        self._saver.shutdown(wait=True)
        if self._builder is not None:
            self._builder.close()
        self._thread.close(CLOSE_SECONDS)

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _check_open(self) -> None:
        if self._life.is_cancelled:
            raise HostClosed("The engine is closed.")

    # On the engine thread

    def _enqueue(self, job: Job) -> None:
        ahead = len(self._jobs) + (self._running is not None)
        job.emit(Queued(job=job.id, ahead=ahead))
        self._jobs.append(job)
        job.token.on_cancel(lambda: self._thread.call(self._drop_if_queued, job))
        if self._running is None:
            self._start_next()

    def _drop_if_queued(self, job: Job) -> None:
        if job in self._jobs:
            self._jobs.remove(job)
            job.emit(Cancelled(job=job.id, reason=job.token.reason))

    def _start_next(self) -> None:
        self._running = self._jobs.popleft() if self._jobs else None
        if self._running is not None:
            self._task = asyncio.get_running_loop().create_task(self._run(self._running))

    async def _run(self, job: Job) -> None:
        end: Callable[[], None]
        try:
            with self._life.linked() as token:
                unregister = job.token.on_cancel(lambda: token.cancel(job.token.reason))
                try:
                    end = partial(job.emit, await self._make(job, token))
                finally:
                    unregister()
        except OperationCancelled as cancelled:
            _let_go(cancelled)
            reason = job.token.reason or self._life.reason or str(cancelled)
            end = partial(job.emit, Cancelled(job=job.id, reason=reason))
        except SafelightError as error:
            log.info("job %s failed: %s", job.id, error, exc_info=True)
            _let_go(error)
            end = partial(job.fail, error)
        except Exception as error:
            log.exception("job %s failed", job.id)
            _let_go(error)
            sentence = f"Something went wrong inside the engine ({error}). The log has the details."
            end = partial(job.fail, SafelightError(sentence))
        self._running = None  # before the end is told: who waited for it finds the engine idle
        end()
        if self._running is None:
            self._start_next()

    async def _make(self, job: Job, token: CancellationToken) -> Finished:
        started = time.perf_counter()
        request = job.request
        description = describe(request.model)
        description.check(request)
        token.raise_if_cancelled()

        def loading(what: str, fraction: float) -> None:
            job.emit(Loading(job=job.id, what=what, fraction=fraction))

        painter = await self._ready_painter(description, loading, token)
        if (reason := why_unavailable(request.backend, painter.model.device_type)) is not None:
            raise BackendUnavailable(reason)
        from engine.generation.pipeline import Listeners  # imports torch, which is there by now

        listeners = Listeners(
            step=lambda report, plan: job.emit(
                Step(
                    job=job.id, step=report.step, steps=report.steps, plan=plan, seconds=report.seconds,
                    preview=report.preview,
                )
            ),
            decoding=lambda: job.emit(Decoding(job=job.id)),
            building=lambda what, fraction: job.emit(Building(job=job.id, what=what, fraction=fraction)),
        )  # fmt: skip
        image, made_with = await self._paint(painter, description, job, listeners, loading, token)
        path, save_error = await self._save(image, request, made_with)
        seconds = time.perf_counter() - started
        return Finished(
            job=job.id, request=request, made_with=made_with, image=image, path=path, save_error=save_error,
            seconds=seconds,
        )  # fmt: skip

    async def _paint(
        self, painter: Painter, description: ModelDescription, job: Job, listeners: Any,
        loading: Callable[[str, float], None], token: CancellationToken,
    ) -> tuple[RgbImage, MadeWith]:  # fmt: skip
        """Make the picture; below f32, make it once more in f32 where the latents stopped being finite."""
        import torch

        from engine.errors import NonFiniteLatents
        from engine.generation.generate import precision_remedy

        try:
            return await painter.make_picture(job.request, lambda: self._settings, listeners, token)
        except NonFiniteLatents as error:
            dtype = painter.model.dtype
            if dtype == torch.float32:
                raise NonFiniteLatents(precision_remedy(error, dtype)) from error
            log.warning("%s; making the picture again in f32", error)
        painter = await self._ready_painter(description, loading, token, torch.float32)
        try:
            return await painter.make_picture(job.request, lambda: self._settings, listeners, token)
        except NonFiniteLatents as error:
            raise NonFiniteLatents(precision_remedy(error, torch.float32)) from error

    async def _save(self, image: RgbImage, request: GenerationRequest, made_with: MadeWith) -> tuple[Any, str | None]:
        folder = self._settings.output_folder
        if folder is None:
            return None, None
        saving = self._saver.submit(save_picture, image, request, made_with, folder)
        try:
            return await asyncio.wrap_future(saving), None
        except SafelightError as error:
            return None, str(error)

    async def _ready_painter(
        self,
        description: ModelDescription,
        loading: Callable[[str, float], None],
        token: CancellationToken,
        dtype: torch.dtype | None = None,
    ) -> Painter:
        """The painter of this model, loaded if need be. The model before stays until the new one is whole."""
        if self._imported is None or not self._imported.done():
            loading("torch", 0.0)
        await unless_cancelled(self._start_import(), token)
        async with self._loading:
            token.raise_if_cancelled()
            from engine.devices import best_device
            from engine.generation.generate import Painter
            from engine.models.model import load

            device = best_device()
            wanted = dtype or device.dtype
            current = self._painter
            kept = self._settings.weights if device.torch_name == "cpu" else Weights.FULL
            if (
                current is not None
                and current.model.description == description
                and current.model.kept_weights is kept
                and wanted in (current.model.dtype, None)
            ):
                await self._use_threads(current.model, token)
                return current
            await self._use_threads(None, token)
            model = await load(
                description, self._stream, self._plan_builder(device.torch_name), device.torch_name, wanted,
                self._sparsely(loading), token, self._tell_ready, kept,
            )  # fmt: skip
            self._painter = Painter(model, self._version)
            if current is not None:
                current.close()
            reasons = {backend: why_unavailable(backend, device.torch_name) for backend in Backend}
            unavailable = {backend: reason for backend, reason in reasons.items() if reason is not None}
            self._tell(device=device.label, model=description.name, ready=(), unavailable=unavailable)
            return self._painter

    def _sparsely(self, loading: Callable[[str, float], None]) -> Callable[[str, float], None]:
        """`loading` for the eager thread: on the engine thread, and only when the progress is worth an event."""
        told = -1.0

        def report(what: str, fraction: float) -> None:
            nonlocal told
            if fraction - told >= _LOADING_STEP:
                told = fraction
                self._thread.call(loading, what, fraction)

        return report

    def _plan_builder(self, device: str) -> PlanBuilder | None:
        if all(why_unavailable(backend, device) for backend in (Backend.OPENVINO, Backend.INDUCTOR)):
            return None
        if self._builder is None:
            self._builder = PlanBuilder(
                self._settings.plan_folder,
                lambda names: self._tell(building=names),
                device,
                lambda: self._settings.threads,
            )
        return self._builder

    async def _use_threads(self, model: Model | None, token: CancellationToken) -> None:
        """Where the setting has changed: have operators, and plans from their next load, run on so many threads."""
        import torch

        wanted = self._settings.threads
        if wanted == self._threads:
            return

        def change() -> None:  # on the eager thread: each thread has a number of its own
            self._default_threads = self._default_threads or torch.get_num_threads()
            torch.set_num_threads(wanted or self._default_threads)

        await self._stream.run_async(change, token)
        self._threads = wanted
        if model is not None:
            model.renew_plans()

    def _start_import(self) -> Future[None]:
        """Import torch on a thread of its own, once. A cancelled job doesn't wait for it; the next finds it done."""
        with self._import_lock:
            if self._imported is None:
                future: Future[None] = Future()

                def run() -> None:
                    try:
                        import_torch()
                        from engine.generation import generate  # noqa: F401
                        from engine.models import model  # noqa: F401
                    except BaseException as error:
                        future.set_exception(error)
                    else:
                        future.set_result(None)

                threading.Thread(target=run, name="safelight-import", daemon=True).start()
                self._imported = future
            return self._imported

    async def _warm_up(self, model: str) -> None:
        try:
            description = describe(model)
            painter = await self._ready_painter(description, lambda what, fraction: None, self._life)
            if self._settings.build_plans:
                defaults = description.defaults
                batch = 2 if defaults.guidance_scale > 1 else 1
                painter.model.prepare(painter.model.signatures(defaults.width, defaults.height, 1, batch), Backend.AUTO)
        except OperationCancelled:
            return
        except SafelightError as error:
            log.warning("warming up failed: %s", error)
        except Exception:
            log.exception("warming up failed")

    def _tell_ready(self) -> None:
        painter = self._painter
        if painter is not None:
            self._tell(ready=tuple(painter.model.planned()))

    def _tell(self, **changes: Any) -> None:
        """Tell the listeners of a change, one change at a time; called from the engine's and the builder's threads."""
        with self._activity_lock:
            self._activity = self._activity.model_copy(update=changes)
            for listener in list(self._listeners):
                listener(self._activity)

    async def _shut_down(self) -> None:
        for job in list(self._jobs):
            job.cancel(self._life.reason)
        while self._running is not None:
            await asyncio.wait([self._task])
        async with self._loading:
            if self._painter is not None:
                self._painter.close()
                self._painter = None


def _let_go(error: BaseException | None) -> None:
    """Drop what the frames of a handled error hold: tensors of a broken-off load would wait there for the collector."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__
