"""Pages that were only read while a plan was compiled stop counting, and read the same afterwards."""

from __future__ import annotations

import mmap
import os
import sys
from pathlib import Path

import psutil
import pytest

from engine.plans.mapped_file import let_go_of_pages

SIZE = 16 << 20


def resident(path: Path) -> int:
    return sum(part.rss for part in psutil.Process().memory_maps(grouped=False) if part.path == str(path))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="madvise of this kind is Linux's")
def test_pages_read_once_no_longer_count_and_can_be_read_again(tmp_path: Path) -> None:
    path, content = tmp_path / "model.bin", os.urandom(SIZE)
    path.write_bytes(content)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert mapped[:] == content
        assert resident(path) == SIZE
        let_go_of_pages(path)
        assert resident(path) == 0
        assert mapped[:] == content


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="madvise of this kind is Linux's")
def test_pages_that_were_written_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(bytes(SIZE))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        mapped[:5] = b"mine!"
        let_go_of_pages(path)
        assert mapped[:5] == b"mine!"
