"""What memory a build takes, said before it is started."""

from __future__ import annotations

from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from engine.errors import ModelRefused, PlanFailed
from engine.models.description import check_header, weight_files
from engine.request import Weights

# Peaks per byte that the weights take in f32, and what comes on top for the libraries. Pages of files, which the system
# can take back, aren't counted: reduced weights are read through the file's map while they are converted.
_CONVERTING = {Weights.FULL: 1.35, Weights.HALF: 0.85, Weights.INT8: 0.65}
_COMPILING = {Weights.FULL: 1.1, Weights.HALF: 1.1, Weights.INT8: 0.6}
_LIBRARIES_CONVERTING, _LIBRARIES_COMPILING = 700_000_000, 400_000_000


def weight_bytes(folder: Path, part: str) -> int:
    """How much the weights of a part take in f32. Only the files' headers are read. Raises `ModelRefused`."""
    total = 0
    for file in weight_files(folder, part):
        check_header(file)
        try:
            with safe_open(file, framework="np") as opened:
                total += sum(4 * prod(opened.get_slice(name).get_shape()) for name in opened.keys())  # noqa: SIM118
        except SafetensorError as error:
            raise ModelRefused(f"{file} can't be read: {error}.") from error
    return total


def build_bytes(folder: Path, part: str, weights: Weights = Weights.FULL, stored: bool = False) -> int:
    """The most that a build of this part's plan takes at once: converting it, unless it is `stored`, then compiling it.

    Raises `ModelRefused`.
    """
    size = weight_bytes(folder, part)
    compiling = round(_COMPILING[weights] * size) + _LIBRARIES_COMPILING
    return compiling if stored else max(compiling, round(_CONVERTING[weights] * size) + _LIBRARIES_CONVERTING)


def check_memory(name: str, folder: Path, part: str, weights: Weights = Weights.FULL, stored: bool = False) -> None:
    """Raises `PlanFailed`, saying how much a build of this part takes and how much is free, where it wouldn't fit."""
    import psutil  # milliseconds, which the window's first paint would wait for

    needed = build_bytes(folder, part, weights, stored)
    free = psutil.virtual_memory().available
    if needed > free:
        raise PlanFailed(
            f"Building the plan of the {name} takes about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are "
            f"free. Close other programs{_smaller_weights(weights)} and load the model again."
        )


def _smaller_weights(weights: Weights) -> str:
    return "" if weights is Weights.INT8 else ", or choose smaller weights in the settings,"
