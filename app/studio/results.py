"""The results of this sitting."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from app.observable import Observable
from engine.events import Finished, MadeWith, RgbImage
from engine.request import GenerationRequest


@dataclass
class Result:
    """One finished picture. `path` is None while it is in memory only."""

    number: int
    request: GenerationRequest
    made_with: MadeWith
    image: RgbImage
    path: Path | None
    seconds: float


class Results(QObject):
    """Results in the order they were made, and which one is selected. Nothing is ever taken away from here."""

    selected = Observable[Result | None](None)
    selected_changed = Signal(object)
    added = Signal(object)
    saved = Signal(object)

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.items: list[Result] = []

    def add(self, finished: Finished) -> Result:
        result = Result(
            number=len(self.items),
            request=finished.request,
            made_with=finished.made_with,
            image=finished.image,
            path=finished.path,
            seconds=finished.seconds,
        )
        self.items.append(result)
        self.added.emit(result)
        return result

    def mark_saved(self, result: Result, path: Path) -> None:
        result.path = path
        self.saved.emit(result)

    def neighbour(self, offset: int) -> Result | None:
        """The result `offset` places from the selected one, the newest where none is selected; None past an end."""
        if not self.items:
            return None
        if self.selected is None:
            return self.items[-1]
        at = self.selected.number + offset
        return self.items[at] if 0 <= at < len(self.items) else None
