"""The one place that writes picture files: whole under another name first, then given their own.

Killed at any instant, a program leaves a whole picture, none, or a file named `.safelight-….part` that a later save
clears away.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import secrets
import sys
import time
import unicodedata
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from engine.errors import PictureNotSaved
from engine.events import MadeWith, RgbImage
from engine.pictures.metadata import encode_png
from engine.request import GenerationRequest

PREFIX, SUFFIX = ".safelight-", ".part"
STALE_AFTER = 3600.0  # seconds: no save takes that long
MAX_WORDS = 60  # bytes of the prompt in a name, which stays under 120 then


def save_picture(
    image: RgbImage, request: GenerationRequest, made_with: MadeWith, folder: Path, now: datetime | None = None
) -> Path:
    """Save a picture as PNG in `folder` under a name of its own, and return its path. Never overwrites.

    The folder is made where only itself is missing. Raises `PictureNotSaved`.
    """
    data = encode_png(image, request, made_with)
    stem = name_picture(request, now or datetime.now())
    with _sentences(folder):
        folder.mkdir(exist_ok=True)
        _clear_stale(folder)
        with _part(folder, data) as part:
            return _publish(part, folder, stem)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file whole beside `path`, then let it take that name, in place of what was there.

    Raises `PictureNotSaved`.
    """
    with _sentences(path.parent), _part(path.parent, data) as part:
        part.replace(path)
        _sync_folder(path.parent)


def name_picture(request: GenerationRequest, now: datetime) -> str:
    """A file name without its suffix: date, time, seed and the prompt's first words. Safe on every file system."""
    words = _slug(request.prompt)
    return f"{now:%Y-%m-%d_%H%M%S}_seed{request.seed}" + (f"_{words}" if words else "")


def _slug(prompt: str) -> str:
    """Letters, marks and digits of any script in lower case, joined by dashes, cut at a word where possible."""
    text = unicodedata.normalize("NFC", prompt[: 4 * MAX_WORDS]).lower()
    words = "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in text).split()
    slug = ""
    for word in words:
        longer = f"{slug}-{word}" if slug else word
        if len(longer.encode()) > MAX_WORDS:
            break
        slug = longer
    return slug or "".join(words[:1]).encode()[:MAX_WORDS].decode(errors="ignore")


@contextlib.contextmanager
def _part(folder: Path, data: bytes) -> Iterator[Path]:
    """A whole file on the disk under a passing name; gone when the block is left, unless it was renamed."""
    part = folder / f"{PREFIX}{secrets.token_hex(8)}{SUFFIX}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(part, flags, 0o666), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield part
    finally:
        with contextlib.suppress(OSError):
            part.unlink()


def _publish(part: Path, folder: Path, stem: str) -> Path:
    numbered = (f"{stem}-{number}" for number in itertools.count(2))
    paths = (folder / f"{name}.png" for name in itertools.chain([stem], numbered))
    path = next(path for path in paths if _claim(part, path))
    _sync_folder(folder)
    return path


def _claim(part: Path, path: Path) -> bool:
    """Give a file its final name in one step; False where the name is taken, by another program as well."""
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL):
            raise
        return _claim_without_links(part, path)
    return True


def _claim_without_links(part: Path, path: Path) -> bool:
    """As `_claim`, for file systems such as FAT: who makes the lock file may rename.

    A rename may replace a file, so whoever is not Safelight could lose one here; there is no better way on those.
    """
    lock = path.with_name(f"{PREFIX}{path.stem}{SUFFIX}")
    try:
        os.close(os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    except FileExistsError:
        return False
    try:
        if path.exists():
            return False
        part.rename(path)
        return True
    except FileExistsError:  # Windows never renames onto a file
        return False
    finally:
        with contextlib.suppress(OSError):
            lock.unlink()


def _sync_folder(folder: Path) -> None:
    """Put the new name itself on the disk. Not every system can; the file is whole either way."""
    if sys.platform == "win32":
        return
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _clear_stale(folder: Path) -> None:
    """Remove what a killed program left behind."""
    oldest = time.time() - STALE_AFTER
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX) and entry.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    if entry.stat(follow_symlinks=False).st_mtime < oldest:
                        Path(entry.path).unlink()


_REASONS = {
    errno.ENOSPC: "the disk with {folder} is full. Free some space",
    errno.EDQUOT: "your quota on the disk with {folder} is used up. Free some space",
    errno.EROFS: "{folder} is on a read-only disk",
    errno.EACCES: "you may not write in {folder}",
    errno.EPERM: "you may not write in {folder}",
    errno.ENOENT: "the folder {folder} doesn't exist",
    errno.ENOTDIR: "{folder} isn't a folder",
    errno.EEXIST: "{folder} isn't a folder",
    errno.EFBIG: "it is too large for the disk with {folder}",
    errno.ENAMETOOLONG: "its path in {folder} is too long",
}


@contextlib.contextmanager
def _sentences(folder: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        number = error.errno if isinstance(error, OSError) else None
        reason = _REASONS.get(number or 0, f"{{folder}} can't be written ({getattr(error, 'strerror', None) or error})")
        what = reason.format(folder=folder)
        raise PictureNotSaved(f"The picture was not saved: {what}. Choose another folder, or try again.") from error
