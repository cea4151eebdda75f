"""Converted models on disk, keyed by what they were made from, whole or not at all, never trusted.

An entry is a folder named by its key, holding model.xml, model.bin and manifest.json with their SHA-256 sums. It is
written under a temporary name and renamed. An entry whose sums don't match is removed before any parser sees it.
OpenVINO models are data: reading one runs no code of theirs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)

FILES = ("model.xml", "model.bin")
MAX_BYTES = 20 * 2**30
ABANDONED_SECONDS = 6 * 3600


class PlanStore:
    """Finds, adds and forgets converted models under one folder; safe against a second program doing the same."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def find(self, key: str) -> Path | None:
        """The entry's model.xml, checked byte by byte against its sums, or None. A bad entry is removed."""
        entry = self._folder / key
        if not entry.is_dir():
            return None
        try:
            manifest = json.loads((entry / "manifest.json").read_text(encoding="utf-8"))
            for name in FILES:
                if manifest["sha256"][name] != sha256(entry / name):
                    raise ValueError(f"{name} has been changed or cut")
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("a stored plan is not usable and will be made again: %s (%s)", entry, error)
            shutil.rmtree(entry, ignore_errors=True)
            return None
        os.utime(entry)
        return entry / FILES[0]

    def add(self, key: str, write: Callable[[Path], None]) -> Path:
        """Have `write(path of model.xml)` write the model, then make it findable. Returns the path of its model.xml.

        Raises what `write` raises; nothing findable is left then.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._sweep()
        place = Path(tempfile.mkdtemp(prefix=".new-", dir=self._folder))
        try:
            write(place / FILES[0])
            manifest = {"sha256": {name: sha256(place / name) for name in FILES}}
            (place / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
            entry = self._folder / key
            try:
                place.rename(entry)
            except OSError:
                if not entry.is_dir():  # otherwise another program was faster with the same content
                    raise
        finally:
            shutil.rmtree(place, ignore_errors=True)
        self._trim(keep=key)
        return entry / FILES[0]

    def _sweep(self) -> None:
        """Remove what a killed program left half-written."""
        for place in self._folder.glob(".new-*"):
            if time.time() - place.stat().st_mtime > ABANDONED_SECONDS:
                shutil.rmtree(place, ignore_errors=True)

    def _trim(self, keep: str) -> None:
        """Forget the entries unused for longest until the store fits its bound."""
        entries = sorted(
            (entry for entry in self._folder.iterdir() if not entry.name.startswith(".")),
            key=lambda e: e.stat().st_mtime,
        )
        sizes = {entry: sum(file.stat().st_size for file in entry.iterdir()) for entry in entries}
        total = sum(sizes.values())
        for entry in entries:
            if total <= self._max_bytes:
                return
            if entry.name != keep:
                shutil.rmtree(entry, ignore_errors=True)
                total -= sizes[entry]


def sha256(path: Path) -> str:
    """The SHA-256 sum of a file's contents, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
