"""The training pictures as `prepare.py` leaves them in the work folder."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from files import save_array, save_json

PEOPLE, SYMBOLS = 1, 8  # groups of emojibase


@dataclass(frozen=True)
class Picture:
    """What is known of one picture: Unicode's name, emojibase's tags and group, and the drawing style."""

    label: str
    tags: tuple[str, ...]
    style: str
    group: int
    hexcode: str


def images_file(work: Path) -> Path:
    return work / "images.npy"


def names_file(work: Path) -> Path:
    return work / "pictures.json"


def save_pictures(work: Path, images: npt.NDArray[np.uint8], pictures: list[Picture]) -> None:
    """`images` is [N, 128, 128, 3], one for each of `pictures`."""
    save_array(images_file(work), images)
    save_json(names_file(work), [asdict(picture) for picture in pictures])


def load_images(work: Path) -> npt.NDArray[np.uint8]:
    """[N, 128, 128, 3], mapped and not read."""
    images: npt.NDArray[np.uint8] = np.load(images_file(work), mmap_mode="r")
    return images


def load_pictures(work: Path) -> list[Picture]:
    entries: list[dict[str, Any]] = json.loads(names_file(work).read_text(encoding="utf-8"))
    return [Picture(**{**entry, "tags": tuple(entry["tags"])}) for entry in entries]


def to_tensor(images: npt.NDArray[np.uint8]) -> Tensor:
    """uint8 [B, H, W, 3] -> float [B, 3, H, W] in -1..1."""
    return torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2).float().div(127.5).sub(1)


def core_concepts() -> frozenset[str]:
    """The names in concepts.txt: faces, animals, food and common things, which the starter should know best."""
    return frozenset((Path(__file__).parent / "concepts.txt").read_text(encoding="utf-8").splitlines())


def is_broad_concept(picture: Picture) -> bool:
    """Whether the noise predictor's first phase trains on it: not on people, symbols and the 24 clock faces.

    Every core concept is a broad one too.
    """
    is_clock_face = picture.label.endswith(("o’clock", "-thirty"))
    return picture.group not in (PEOPLE, SYMBOLS) and not is_clock_face
