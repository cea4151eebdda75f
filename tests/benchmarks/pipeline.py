"""Whole pictures from an SDXL pipeline: diffusers' own, the same with torch.compile, ours asked both ways.

    python -m tests.benchmarks.pipeline                                50 and 4 steps of DDIM at latents of 128×128
    python -m tests.benchmarks.pipeline --latent 32 --rounds 3         a size for a short look
    python -m tests.benchmarks.pipeline --only eager,async --steps 4

The model is SDXL at a fifth of its width with random weights (`tests.benchmarks.narrow_sdxl`). A picture is everything
from prompt to 8-bit pixels, text encoding and VAE decoding included, with guidance; every round has another prompt, so
that no kept embedding helps. Each contestant has a process of its own with the same number of threads. They take turns,
each after a picture of one step that isn't timed, as the system takes pages from a process that waits. diffusers runs
in the faster of the two memory formats; torch.compile takes UNet and decoder, with frozen weights. Ours runs OpenVINO
plans, without previews, since the others make none. Compiling is timed apart.

Keys, for each number of steps in `cases`: eager_s, torch_compile_s, sync_s, async_s (medians of a picture),
async_speedup (eager_s / async_s), torch_compile_ratio (torch_compile_s / async_s), compile_s (ours, conversion
included). Beside them compile_s and peak_rss_mb of each contestant (of all its processes while it makes pictures;
with_compiling_mb from the start on), max_level_difference (the largest of any 8-bit channel from the first contestant's
picture), parameters. Asked: async_speedup at least 1.6 at 50 steps and 1.4 at 4, torch_compile_ratio at least 1.0.
torch.compile takes ten minutes and more on few cores.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.contestant import CONTESTANTS, Contestant
from tests.benchmarks.measure import options, place, prepare_environment, progress, report

ASKED = {50: 1.6, 4: 1.4}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--steps", type=_numbers, default=[50, 4], metavar="N,N", help="cases; 50,4")
    parser.add_argument("--latent", type=int, default=128, metavar="N", help="side of the latents; 128")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="timed pictures of each; 3")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N", help="of each")
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(CONTESTANTS), metavar="A,B",
                        help=f"contestants; {','.join(CONTESTANTS)}")  # fmt: skip
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="where the model is, or is written to and kept")
    chosen = parser.parse_args()
    prepare_environment()
    with place(chosen.model) as folder, tempfile.TemporaryDirectory(prefix="safelight-benchmark-") as scratch:
        parameters = _written(folder)
        results = _measure(
            folder, Path(scratch), chosen.only, chosen.steps, chosen.latent, chosen.rounds, chosen.threads
        )
    report({**results, "parameters": parameters}, chosen.json)


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _written(folder: Path) -> dict[str, int]:
    from engine.importing import import_torch

    import_torch()
    from tests.benchmarks.narrow_sdxl import count_parameters, write_model

    parameters = count_parameters(write_model(folder))
    progress(f"{sum(parameters.values()):,} parameters: {parameters}")
    return parameters


def _measure(
    folder: Path, scratch: Path, names: Sequence[str], cases: Sequence[int], latent: int, rounds: int, threads: int
) -> dict[str, Any]:
    seconds: dict[tuple[str, int], list[float]] = {(name, steps): [] for name in names for steps in cases}
    with contextlib.ExitStack() as stack:
        contestants: dict[str, Contestant] = {}
        for name in names:  # one after the other: compiling takes every core
            progress(f"{name}: loading, compiling")
            contestants[name] = stack.enter_context(Contestant(name, folder, scratch, latent, threads))
            progress(f"{name}: compiled in {contestants[name].compile_s:.1f} s")
        for steps in cases:
            for number in range(rounds):
                for name, contestant in contestants.items():
                    contestant.make(1, number - rounds)
                    taken = contestant.make(steps, number)
                    seconds[name, steps].append(taken)
                    progress(f"{steps} steps, round {number + 1}: {name} {taken:.2f} s")
        pictures = {name: contestant.last_picture() for name, contestant in contestants.items()}
    return {
        "latent": latent,
        "threads": threads,
        "rounds": rounds,
        "cases": [_case(steps, {name: statistics.median(seconds[name, steps]) for name in names}, contestants)
                  for steps in cases],
        "compile_s": {name: contestant.compile_s for name, contestant in contestants.items()},
        "peak_rss_mb": {name: contestant.peak_rss / 2**20 for name, contestant in contestants.items()},
        "with_compiling_mb": {
            name: contestant.peak_rss_with_compiling / 2**20 for name, contestant in contestants.items()
        },
        "max_level_difference": _difference(pictures),
    }  # fmt: skip


def _case(steps: int, medians: dict[str, float], contestants: dict[str, Contestant]) -> dict[str, Any]:
    case: dict[str, Any] = {"steps": steps} | {f"{name}_s": taken for name, taken in medians.items()}
    if "async" in medians:
        case["compile_s"] = contestants["async"].compile_s
        if "eager" in medians:
            case |= {"async_speedup": medians["eager"] / medians["async"], "asked_speedup": ASKED.get(steps)}
        if "torch_compile" in medians:
            case["torch_compile_ratio"] = medians["torch_compile"] / medians["async"]
    return case


def _difference(pictures: dict[str, bytes]) -> dict[str, int]:
    import numpy as np

    levels = {name: np.frombuffer(picture, dtype=np.uint8).astype(int) for name, picture in pictures.items()}
    first = next(iter(levels.values()))
    return {name: int(abs(picture - first).max()) for name, picture in levels.items()}


if __name__ == "__main__":
    main()
