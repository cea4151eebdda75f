"""A small JSON file that is written whole and read with distrust."""

from __future__ import annotations

import itertools
import logging
import os
import threading
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from engine.validation import first_fault

log = logging.getLogger(__name__)

Model = TypeVar("Model", bound=BaseModel)


class JsonFile(Generic[Model]):
    """Holds one pydantic model on disk.

    `save` returns at once: a thread writes beside the file, syncs and renames, so the file is always a whole one and
    a slow disk never holds the window. Of several saves that wait only the newest is written. `close` waits for it.

    `damage` is a sentence for people where `load` found a file that it could make nothing of.
    """

    def __init__(self, path: Path, model: type[Model]) -> None:
        self.path = path
        self.damage: str | None = None
        self._model = model
        self._lock = threading.Lock()
        self._waiting: Model | None = None
        self._thread: threading.Thread | None = None

    def load(self) -> Model:
        """What the file holds. A missing file gives the defaults; a damaged one too, and is kept under another name."""
        try:
            return self._model.model_validate_json(self.path.read_bytes())
        except FileNotFoundError:
            pass
        except (OSError, ValidationError) as error:
            self.damage = f"{self.path} was damaged ({_reason(error)}). Defaults stand in for it, {self._put_aside()}."
            log.warning("%s", self.damage)
        return self._model()

    def _put_aside(self) -> str:
        """Rename the file, so that the next save doesn't end it, and say in words what became of it."""
        names = (f"{self.path.stem}.damaged-{number}{self.path.suffix}" for number in itertools.count(1))
        aside = next(path for path in map(self.path.with_name, names) if not path.exists())
        try:
            self.path.rename(aside)
        except OSError:
            return "and it can't be kept"
        return f"and it is kept as {aside.name}"

    def save(self, value: Model) -> None:
        with self._lock:
            self._waiting = value
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_waiting, name=f"save {self.path.name}")
                self._thread.start()

    def close(self) -> None:
        """Wait until what was saved is on disk."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _write_waiting(self) -> None:
        while True:
            with self._lock:
                value, self._waiting = self._waiting, None
                if value is None:
                    self._thread = None
                    return
            try:
                self._write(value.model_dump_json(indent=2).encode())
            except OSError as error:
                log.warning("%s could not be saved (%s)", self.path, error)

    def _write(self, content: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.tmp")
        try:
            with beside.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self.path)
        finally:
            beside.unlink(missing_ok=True)


def _reason(error: OSError | ValidationError) -> str:
    if isinstance(error, OSError):
        return error.strerror or str(error)
    where, what = first_fault(error)
    return f"{where or 'it'} {what}"
