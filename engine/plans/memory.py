"""What memory a build takes, said before it is started."""

from __future__ import annotations

from math import prod
from pathlib import Path

from safetensors import SafetensorError, safe_open

from engine.errors import ModelRefused, PlanFailed
from engine.models.description import check_header, weight_files

# Of a build's peak, the larger of conversion (one process with the weights in f32, and the libraries) and compiling.
PEAK_PER_WEIGHT, LIBRARIES = 1.35, 700_000_000


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


def check_memory(name: str, folder: Path, part: str) -> None:
    """Raises `PlanFailed`, saying how much a build of this part takes and how much is free, where it wouldn't fit."""
    import psutil  # milliseconds, which the window's first paint would wait for

    needed = round(PEAK_PER_WEIGHT * weight_bytes(folder, part)) + LIBRARIES
    free = psutil.virtual_memory().available
    if needed > free:
        raise PlanFailed(
            f"Building the plan of the {name} takes about {needed / 1e9:.1f} GB of memory, and {free / 1e9:.1f} GB are "
            "free. Close other programs and load the model again."
        )
