"""A job: one request on its way, with its token, its events and its result."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from concurrent.futures import Future

from engine.cancellation import CancellationToken
from engine.errors import OperationCancelled, SafelightError
from engine.events import Cancelled, Event, EventStream, Failed, Finished
from engine.request import GenerationRequest

log = logging.getLogger(__name__)

_numbers = itertools.count(1)


class Job:
    """One picture on its way. `events` can be iterated once, on any loop; `result` blocks."""

    def __init__(self, request: GenerationRequest, on_event: Callable[[Event], None] | None = None) -> None:
        self.id = next(_numbers)
        self.request = request
        self.token = CancellationToken()
        self.events = EventStream()
        self._on_event = on_event
        self._result: Future[Finished] = Future()

    def cancel(self, reason: str | None = None) -> None:
        """End the job wherever it is: queued, loading, in a step or decoding. Safe from any thread, harmless twice."""
        self.token.cancel(reason)

    def emit(self, event: Event) -> None:
        """Hand an event to whoever listens; the last one settles `result`. Called by the engine."""
        self.events.put(event)
        self._tell(event)
        if isinstance(event, Finished):
            self._result.set_result(event)
        elif isinstance(event, Cancelled):
            self._result.set_exception(OperationCancelled(event.reason))

    def _tell(self, event: Event) -> None:
        if self._on_event is None:
            return
        try:
            self._on_event(event)
        except Exception:  # a listener's mistake must neither fail the picture nor leave `result` unsettled
            log.exception("a listener failed at %s", event.kind)

    def fail(self, error: SafelightError) -> None:
        """End with an error whose message is a sentence for a person. Called by the engine."""
        self.emit(Failed(job=self.id, message=str(error)))
        self._result.set_exception(error)

    @property
    def future(self) -> Future[Finished]:
        return self._result

    def result(self, timeout: float | None = None) -> Finished:
        """Wait for the picture. Raises `OperationCancelled` or the error that the job failed with."""
        return self._result.result(timeout)
