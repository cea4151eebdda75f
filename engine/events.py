"""What happens to a job, as plain data, and the stream that carries it to another thread's loop.

The order within a job is Queued, Loading*, Building*, Step*, Decoding, then exactly one of Finished, Cancelled, Failed.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from engine.request import Backend, GenerationRequest, Weights


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_bytes="base64", val_json_bytes="base64")


class RgbImage(_Data):
    """8-bit RGB, rows top to bottom: `pixels` holds `height * width * 3` bytes."""

    width: int
    height: int
    pixels: bytes = Field(repr=False)


class MadeWith(_Data):
    """What made a picture, beyond its request; with the same one the same request gives the same bits.

    `plan` names the kind of plan: "eager", "openvino-static", or "openvino-static, then eager" where a plan broke while
    it ran, which can't be repeated. `batch` is the noise predictor's batch size; `weights` are those it was made with.
    """

    plan: str
    batch: int
    vae_tiling: bool = False
    vae_slicing: bool = False
    safelight: str = ""
    torch: str = ""
    weights: Weights = Weights.FULL


class _JobEvent(_Data):
    job: int


class Queued(_JobEvent):
    """Accepted; `ahead` jobs come first."""

    kind: Literal["queued"] = "queued"
    ahead: int


class Loading(_JobEvent):
    """A model is being loaded: `what` names the part, `fraction` is in 0..1 of the whole model."""

    kind: Literal["loading"] = "loading"
    what: str
    fraction: float


class Building(_JobEvent):
    """The job waits for plans, because its request names a backend; `fraction` is in 0..1."""

    kind: Literal["building"] = "building"
    what: str
    fraction: float


class Step(_JobEvent):
    """Step `step` of `steps` is done (1-based). `plan` is the kind of plan at work, `seconds` what the step took.

    `preview` is the predicted clean picture, or None where it was throttled or a newer one has taken its place.
    """

    kind: Literal["step"] = "step"
    step: int
    steps: int
    plan: str
    seconds: float
    preview: RgbImage | None = None


class Decoding(_JobEvent):
    kind: Literal["decoding"] = "decoding"


class Finished(_JobEvent):
    """The picture, and its file. Where saving failed `path` is None and `save_error` is a sentence saying why."""

    kind: Literal["finished"] = "finished"
    request: GenerationRequest
    made_with: MadeWith
    image: RgbImage
    path: Path | None = None
    save_error: str | None = None
    seconds: float


class Cancelled(_JobEvent):
    kind: Literal["cancelled"] = "cancelled"
    reason: str | None = None


class Failed(_JobEvent):
    """`message` is a sentence for a person; the traceback is in the log."""

    kind: Literal["failed"] = "failed"
    message: str


Event = Annotated[
    Queued | Loading | Building | Step | Decoding | Finished | Cancelled | Failed, Field(discriminator="kind")
]
EVENT: TypeAdapter[Event] = TypeAdapter(Event)
ENDS = (Finished, Cancelled, Failed)


class EngineActivity(_Data):
    """What the engine does beside its jobs: `building` names the plans being built, `ready` the modules that have one.

    `unavailable` says, for each backend that the loaded model can't use on this computer, why.
    """

    device: str = "CPU"
    model: str = ""
    building: tuple[str, ...] = ()
    ready: tuple[str, ...] = ()
    unavailable: dict[Backend, str] = Field(default_factory=dict)


class EventStream:
    """Carries one job's events to whoever iterates, on any loop, in order, none lost.

    `put` may be called from any thread and never blocks. A slow reader gets every event, but of the previews that
    wait only the newest keeps its pixels, so memory stays bounded. Iteration ends after the last event of the job.
    One reader at a time.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self._waiting: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._preview_at: int | None = None
        self._taken = 0

    def put(self, event: Event) -> None:
        with self._lock:
            if isinstance(event, Step) and event.preview is not None:
                self._drop_waiting_preview()
                self._preview_at = self._taken + len(self._events)
            self._events.append(event)
            waiting, self._waiting = self._waiting, None
        if waiting is not None:
            loop, future = waiting
            try:
                loop.call_soon_threadsafe(_wake, future)
            except RuntimeError:  # the reader's loop is closed: nobody is listening any more
                return

    def _drop_waiting_preview(self) -> None:
        at = None if self._preview_at is None else self._preview_at - self._taken
        if at is not None and at >= 0:
            waiting = self._events[at]
            assert isinstance(waiting, Step)
            self._events[at] = waiting.model_copy(update={"preview": None})

    def _take(self) -> Event | None:
        if not self._events:
            return None
        self._taken += 1
        return self._events.popleft()

    async def __aiter__(self) -> AsyncIterator[Event]:
        loop = asyncio.get_running_loop()
        while True:
            with self._lock:
                event = self._take()
                if event is None:
                    future: asyncio.Future[None] = loop.create_future()
                    self._waiting = (loop, future)
            if event is None:
                await future
                continue
            yield event
            if isinstance(event, ENDS):
                return


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
