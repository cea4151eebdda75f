"""The texts of a PNG file, read within bounds: no pixel is decoded, and no length in the file is believed.

Format: https://www.w3.org/TR/png-3/ (chunks: 5.3, textual information: 11.3.3).
"""

from __future__ import annotations

import contextlib
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from engine.errors import PictureUnreadable

SIGNATURE = b"\x89PNG\r\n\x1a\n"
TEXT_CHUNKS = (b"tEXt", b"zTXt", b"iTXt")
MAX_TEXT = 1 << 20  # bytes of one text, packed and unpacked: four times the longest prompts that a request holds
MAX_TEXTS = 4 << 20  # bytes of all texts
MAX_CHUNKS = 100_000


def read_texts(path: Path, stop_after: str) -> dict[str, str]:
    """The texts of a file by keyword; the first of each keyword counts, and `stop_after` ends the reading.

    Texts over `MAX_TEXT` and damaged ones are passed over. Raises `PictureUnreadable` for what isn't a PNG file, and
    for one that is truncated or garbled before `stop_after` was found.
    """
    texts: dict[str, str] = {}
    try:
        with _open(path) as file:
            for kind, body in _text_chunks(file, path):
                keyword, text = _text(kind, body)
                if text is not None:
                    texts.setdefault(keyword, text)
                if keyword == stop_after and text is not None:
                    break
    except FileNotFoundError:
        raise PictureUnreadable(f"{path} doesn't exist.") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) else error
        raise PictureUnreadable(f"{path} can't be read ({reason}).") from error
    return texts


@contextlib.contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    # Opening a named pipe would wait for a writer that never comes.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise PictureUnreadable(f"{path} isn't a file.")
        yield file


def _text_chunks(file: BinaryIO, path: Path) -> Iterator[tuple[bytes, bytes]]:
    if file.read(len(SIGNATURE)) != SIGNATURE:
        raise PictureUnreadable(f"{path.name} isn't a PNG picture.")
    size, read = os.fstat(file.fileno()).st_size, 0
    for number in range(MAX_CHUNKS):
        head = file.read(8)
        length, kind = int.from_bytes(head[:4], "big"), head[4:]
        end = file.tell() + length + 4
        if len(head) < 8 or length >= 1 << 31 or end > size:
            raise PictureUnreadable(f"{path.name} is truncated or damaged. Copy it again.")
        if number == 0 and (kind != b"IHDR" or length != 13):
            raise PictureUnreadable(f"{path.name} isn't a PNG picture.")
        if kind == b"IEND":
            return
        if kind in TEXT_CHUNKS and length <= MAX_TEXT and read + length <= MAX_TEXTS:
            read += length
            body = file.read(length)
            if zlib.crc32(kind + body) == int.from_bytes(file.read(4), "big"):
                yield kind, body
        file.seek(end)
    raise PictureUnreadable(f"{path.name} has too many parts for a picture.")


def _text(kind: bytes, body: bytes) -> tuple[str, str | None]:
    """Keyword and text; the text is None where it is garbled or unpacks to more than `MAX_TEXT`."""
    name, _, rest = body.partition(b"\0")
    keyword = name.decode("latin-1")
    if kind == b"tEXt":
        return keyword, rest.decode("latin-1")
    if kind == b"zTXt":
        unpacked = _unpack(rest[1:]) if rest[:1] == b"\0" else None
        return keyword, None if unpacked is None else unpacked.decode("latin-1")
    packed, method, rest = rest[:1], rest[1:2], rest[2:]
    _language, _, rest = rest.partition(b"\0")
    _translated, _, raw = rest.partition(b"\0")
    if packed == b"\1":
        unpacked = _unpack(raw) if method == b"\0" else None
    else:
        unpacked = raw if packed == b"\0" else None
    try:
        return keyword, None if unpacked is None else unpacked.decode("utf-8")
    except UnicodeDecodeError:
        return keyword, None


def _unpack(data: bytes) -> bytes | None:
    unpacker = zlib.decompressobj()
    try:
        unpacked = unpacker.decompress(data, MAX_TEXT)
    except zlib.error:
        return None
    return unpacked if unpacker.eof else None
