"""What the benchmarks share: their options, places for models and plans, rounds, quantiles, and how they report."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app import folders


def options(doc: str | None) -> argparse.ArgumentParser:
    """A parser with what every benchmark takes; `doc` is its module's docstring."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line of stdout")
    return parser


def add_model_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--sd15", type=Path, metavar="FOLDER", help="where the model of SD 1.5's size is, or is written to and kept"
    )


def progress(text: str) -> None:
    """A line for the person who waits."""
    print(text, file=sys.stderr, flush=True)


def report(results: Mapping[str, Any], as_json: bool) -> None:
    """The results, one a line, or as the JSON object on the last line of stdout."""
    if as_json:
        print(json.dumps(rounded(results)), flush=True)
        return
    for key, value in rounded(results).items():
        print(f"{key:24} {value}", flush=True)


def rounded(value: Any, digits: int = 4) -> Any:
    """Floats cut to significant digits, within lists and mappings too."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}") if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: rounded(item, digits) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item, digits) for item in value]
    return value


@contextlib.contextmanager
def place(folder: Path | None) -> Iterator[Path]:
    """`folder`, kept, or a temporary one."""
    if folder is not None:
        yield folder.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="safelight-benchmark-") as temporary:
        yield Path(temporary)


def prepare_environment() -> None:
    """What the program does before it imports anything heavy: libraries stay offline and silent."""
    folders.prepare_environment()


def child_environment(home: str) -> dict[str, str]:
    """The environment of a child that opens the window: its own folders, and no screen where there is none."""
    environment = os.environ | {"SAFELIGHT_HOME": home}
    if not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        environment.setdefault("QT_QPA_PLATFORM", "offscreen")
    return environment


async def interleaved(
    contestants: Mapping[str, Callable[[], Awaitable[object]]], rounds: int, warm_ups: int = 2
) -> dict[str, float]:
    """The median seconds of each contestant, run in turn, so that whatever else the machine does hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(-warm_ups, rounds):
        for name, run in contestants.items():
            started = time.perf_counter()
            await run()
            if number >= 0:
                seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(taken) for name, taken in seconds.items()}


def quantile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of all values don't exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
