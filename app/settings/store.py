"""The settings as the rest of the window sees them: current, observable, kept on disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.json_file import JsonFile
from app.observable import Observable
from app.settings.settings import Settings


class SettingsStore(QObject):
    """`current` is replaced as a whole, and saved each time."""

    current = Observable(Settings())
    current_changed = Signal(object)

    def __init__(self, path: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._file = JsonFile(path, Settings)
        self.current = self._file.load()

    @property
    def damage(self) -> str | None:
        """A sentence for people where the file of settings was damaged."""
        return self._file.damage

    def change(self, **values: Any) -> None:
        """Replace some settings. Raises `pydantic.ValidationError` for values out of range."""
        changed = Settings.model_validate(self.current.model_dump() | values)
        if changed != self.current:
            self.current = changed
            self._file.save(changed)

    def close(self) -> None:
        self._file.close()
