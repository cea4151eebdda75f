"""Converted models on disk, keyed by what they were made from, whole or not at all, never trusted.

An entry is a folder named by its key, holding model.xml, model.bin and manifest.json with their SHA-256 sums. It is
written under a temporary name and renamed. An entry whose sums don't match is removed before any parser sees it.
OpenVINO models are data: reading one runs no code of theirs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from engine.cancellation import CancellationToken
from engine.plans.file_lock import locked

log = logging.getLogger(__name__)

FILES = ("model.xml", "model.bin")
MAX_BYTES = 20 * 2**30
ABANDONED_SECONDS = 6 * 3600
_NEW, _GONE, _LOCK = ".new-", ".gone-", ".lock"
_BLOCK = 4 * 2**20


class PlanStore:
    """Finds, adds and forgets converted models under one folder; safe against a second program doing the same."""

    def __init__(self, folder: Path, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._max_bytes = max_bytes

    def find(self, key: str, token: CancellationToken = CancellationToken.none) -> Path | None:
        """The entry's model.xml, checked byte by byte against its sums, or None. A bad entry is removed."""
        entry = self._folder / key
        if not os.path.lexists(entry):
            return None
        try:
            manifest = json.loads((entry / "manifest.json").read_text(encoding="utf-8"))
            for name in FILES:
                if manifest["sha256"][name] != sha256(entry / name, token):
                    raise ValueError(f"{name} has been changed or cut")
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            log.warning("a stored plan is not usable and will be made again: %s (%s)", entry, error)
            self._remove(entry)
            return None
        with contextlib.suppress(OSError):  # read-only, or another program has just removed it
            os.utime(entry)
        return entry / FILES[0]

    def add(
        self, key: str, write: Callable[[Path], None], token: CancellationToken = CancellationToken.none
    ) -> Path:  # fmt: skip
        """Have `write(path of model.xml)` write the model, then make it findable. Returns the path of its model.xml.

        One program writes at a time, as a conversion takes minutes and the memory of the whole model; who had to wait
        takes what the other has made. Raises `OperationCancelled`, and what `write` raises; nothing findable is left
        then.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with locked(self._folder / _LOCK, token):
            return self.find(key, token) or self._add(key, write)

    def _add(self, key: str, write: Callable[[Path], None]) -> Path:
        self._sweep()
        place = Path(tempfile.mkdtemp(prefix=_NEW, dir=self._folder))
        try:
            write(place / FILES[0])
            manifest = {"sha256": {name: sha256(place / name) for name in FILES}}
            (place / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
            entry = self._folder / key
            try:
                place.rename(entry)
            except OSError:
                if self.find(key) is None:  # otherwise another program was faster with the same content
                    place.rename(entry)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        self._trim(keep=key)
        return entry / FILES[0]

    def _remove(self, entry: Path) -> None:
        """Out of sight in one step, since another program may be about to put a good entry in its place."""
        gone = self._folder / f"{_GONE}{uuid.uuid4().hex}"
        with contextlib.suppress(OSError):
            entry.rename(gone)
            if gone.is_dir() and not gone.is_symlink():
                shutil.rmtree(gone, ignore_errors=True)
            else:
                gone.unlink()

    def _sweep(self) -> None:
        """Remove what a killed program left half-written or half-removed."""
        for place in (*self._folder.glob(f"{_NEW}*"), *self._folder.glob(f"{_GONE}*")):
            with contextlib.suppress(OSError):
                if time.time() - place.stat().st_mtime > ABANDONED_SECONDS:
                    shutil.rmtree(place, ignore_errors=True)

    def _trim(self, keep: str) -> None:
        """Forget the entries unused for longest until the store fits its bound. What isn't an entry is left alone."""
        entries: list[tuple[float, int, Path]] = []
        for manifest in self._folder.glob("[!.]*/manifest.json"):
            entry = manifest.parent
            with contextlib.suppress(OSError):  # another program has just removed it
                size = sum(file.stat().st_size for file in entry.iterdir())
                entries.append((entry.stat().st_mtime, size, entry))
        total = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if total <= self._max_bytes:
                return
            if entry.name != keep:
                self._remove(entry)
                total -= size


def sha256(path: Path, token: CancellationToken = CancellationToken.none) -> str:
    """The SHA-256 sum of a file's contents, in hexadecimal. Raises `OperationCancelled` within some milliseconds."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            token.raise_if_cancelled()
            digest.update(block)
    return digest.hexdigest()
