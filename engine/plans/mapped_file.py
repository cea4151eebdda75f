"""Pages of a mapped file that were read once, while a plan was compiled, and are only a second copy afterwards."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

_MADV_DONTNEED = 4  # Linux: madvise(2)


def let_go_of_pages(path: Path) -> None:
    """Stop counting the pages of `path` that this process mapped for reading as its memory. Linux only; elsewhere the
    system takes them when it needs them. A page that is read again after all comes back from the file.
    """
    if not sys.platform.startswith("linux"):
        return
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5] == str(path) and fields[1].startswith("r--"):
            start, end = (int(address, 16) for address in fields[0].split("-"))
            madvise(start, end - start, _MADV_DONTNEED)
