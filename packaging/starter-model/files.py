"""Files of the work folder that are either whole or not there, and their digests."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import torch


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write beside `path`, then rename, so that a broken run leaves the old file or none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        write(file)
    partial.replace(path)


def save_array(path: Path, array: npt.NDArray[Any]) -> None:
    write_whole(path, lambda file: np.save(file, array))


def save_tensors(path: Path, tensors: dict[str, Any]) -> None:
    write_whole(path, lambda file: torch.save(tensors, file))


def load_tensors(path: Path) -> dict[str, Any]:
    """A dictionary that `save_tensors` wrote; nothing in the file can run code."""
    loaded: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return loaded


def save_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=1, ensure_ascii=False)
    write_whole(path, lambda file: file.write(text.encode()))


def digest(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
