"""One picture's events as a progress bar in the terminal."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from tqdm import tqdm

from engine.events import Building, Decoding, Event, Loading, Queued, Step


class ProgressBar:
    """Shows the step, the steps, and what the engine is doing, on stderr; nothing where that is no terminal."""

    def __init__(self, name: str, steps: int, quiet: bool) -> None:
        self._name = name
        self._bar = tqdm(total=steps, desc=name, unit="step", leave=False, disable=True if quiet else None)

    def show(self, event: Event) -> None:
        match event:
            case Queued():
                self._say("waiting")
            case Loading():
                self._say(f"loading {event.what} {event.fraction:.0%}")
            case Building():
                self._say(f"building {event.what} {event.fraction:.0%}")
            case Step():
                self._bar.set_description_str(self._name, refresh=False)
                self._bar.set_postfix_str(event.plan, refresh=False)
                self._bar.update(event.step - self._bar.n)
            case Decoding():
                self._say("decoding")

    def _say(self, doing: str) -> None:
        self._bar.unpause()  # what comes before the steps is no part of their rate
        self._bar.set_description_str(f"{self._name}: {doing}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._bar.close()
