"""How long the window's event loop is held up: gaps between the calls of a 1 ms timer in the program's own window.

    python -m tests.benchmarks.responsiveness --json
    python -m tests.benchmarks.responsiveness --only starter          without the SD 1.5-sized model
    python -m tests.benchmarks.responsiveness --sd15 /data/sd15       keep that model for next time

Two programs are opened one after the other, each in folders of its own. The first imports torch right after its first
paint, loads the bundled model, builds its plans, stands idle, runs eagerly and with the plans; the second loads a
model of SD 1.5's size and runs it eagerly at 256×256. Pictures are asked for as by the Generate button, so that
previews, progress and results are painted as always.

Keys: p99_ms and max_ms, the worst of all phases but idling and the import; idle_p99_ms, idle_max_ms,
torch_import_max_ms; and one object a phase. Asked: p99_ms at most 16, max_ms at most 50, torch_import_max_ms at most
250. The platform is that of the X server there is, "offscreen" where there is none.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import time
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks.measure import (
    add_model_folder,
    child_environment,
    options,
    place,
    prepare_environment,
    progress,
    quantile,
    report,
)

if TYPE_CHECKING:
    from tests.benchmarks.driven_window import Driven

STARTER, SD15 = "starter", "sd15"
SD15_SIDE = 256
PROMPT = "a red apple, 3d style"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--seconds", type=float, default=10, metavar="S", help="how long to watch idling and each run")
    parser.add_argument("--steps", type=int, default=4, metavar="N", help="steps of the SD 1.5-sized model")
    parser.add_argument("--only", choices=(STARTER, SD15), help="open one program instead of both")
    parser.add_argument("--program", choices=(STARTER, SD15), help=argparse.SUPPRESS)
    add_model_folder(parser)
    chosen = parser.parse_args()
    if chosen.program is not None:
        print(json.dumps(_run_program(chosen)), flush=True)
        return
    results: dict[str, Any] = {}
    if chosen.only != SD15:
        results |= _in_child([*_arguments(chosen), "--program", STARTER])
    if chosen.only != STARTER:
        with place(chosen.sd15) as folder:
            progress(f"the SD 1.5-sized model is in {folder}")
            subprocess.run([sys.executable, "-m", "tests.benchmarks.sd15", str(folder)], stdout=sys.stderr, check=True)
            results |= _in_child([*_arguments(chosen), "--program", SD15, "--sd15", str(folder)])
    report(_summary(results), chosen.json)


def _arguments(chosen: argparse.Namespace) -> list[str]:
    return ["--seconds", str(chosen.seconds), "--steps", str(chosen.steps)]


def _in_child(arguments: list[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.responsiveness", *arguments]
    with tempfile.TemporaryDirectory(prefix="safelight-benchmark-") as home:
        done = subprocess.run(command, stdout=subprocess.PIPE, env=child_environment(home), check=True)
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return results


def _summary(results: dict[str, Any]) -> dict[str, Any]:
    phases = {name: phase for name, phase in results.items() if isinstance(phase, dict)}
    apart = ("idle", "torch_import")
    worked = [phase for name, phase in phases.items() if name not in apart]
    nothing: dict[str, Any] = {}
    idle, imported = phases.get("idle", nothing), phases.get("torch_import", nothing)
    return {
        "p99_ms": max(phase["p99_ms"] for phase in worked),
        "max_ms": max(phase["max_ms"] for phase in worked),
        "idle_p99_ms": idle.get("p99_ms"),
        "idle_max_ms": idle.get("max_ms"),
        "torch_import_max_ms": imported.get("max_ms"),
        **results,
    }


# In the program that is watched


class Gaps:
    """When a timer of 1 ms was called, and what was going on when."""

    def __init__(self) -> None:
        from PySide6.QtCore import Qt, QTimer

        self._calls = array("d")
        self._phases: dict[str, tuple[float, float]] = {}
        self._timer = QTimer(interval=1, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(lambda: self._calls.append(time.perf_counter()))

    def start(self) -> None:
        self._calls.append(time.perf_counter())
        self._timer.start()

    def phase(self, name: str, start: float, end: float) -> None:
        """From `start` to `end` (`time.perf_counter`) this went on; a gap belongs to the phase that it begins in."""
        self._phases[name] = start, end
        progress(f"{name}: {self._describe(start, end)}")

    def results(self) -> dict[str, dict[str, float]]:
        return {name: self._describe(*span) for name, span in self._phases.items()}

    def _describe(self, start: float, end: float) -> dict[str, float]:
        calls = self._calls
        gaps = [(b - a) * 1000 for a, b in itertools.pairwise(calls) if start <= a < end]
        return {
            "p99_ms": quantile(gaps, 0.99),
            "max_ms": max(gaps, default=float("nan")),
            "over_16_ms": sum(gap > 16 for gap in gaps),
            "seconds": end - start,
        }


def _run_program(chosen: argparse.Namespace) -> dict[str, Any]:
    """Open the window, go through the phases, return them."""
    prepare_environment()
    from engine.request import Backend
    from tests.benchmarks.driven_window import open_window

    gaps, results = Gaps(), {}

    def begin(driven: Driven) -> None:
        results["platform"] = driven.platform
        gaps.start()
        form = driven.studio.form
        form.prompt, form.backend = PROMPT, Backend.EAGER
        if chosen.program == SD15:
            form.set_size(SD15_SIDE, SD15_SIDE)
            form.steps = chosen.steps
        # before the window warms the engine up, so that the load is this run's and its progress is shown
        driven.studio.generate()

    async def drive(driven: Driven) -> None:
        await driven.until_run_ends()
        if chosen.program == STARTER:
            await _drive_starter(driven, gaps, chosen.seconds)
        else:
            imported, loaded = _import_and_load(driven)
            gaps.phase("load_sd15", imported, loaded)
            gaps.phase("sd15_eager", loaded, time.perf_counter())

    model = STARTER if chosen.program == STARTER else str(Path(chosen.sd15).absolute())
    with contextlib.redirect_stdout(sys.stderr):
        open_window(drive, begin, model, build_plans=chosen.program == STARTER)
    return results | gaps.results()


async def _drive_starter(driven: Driven, gaps: Gaps, seconds: float) -> None:
    from engine.request import Backend
    from tests.benchmarks.driven_window import until

    studio, form = driven.studio, driven.studio.form
    imported, loaded = _import_and_load(driven)
    gaps.phase("torch_import", driven.painted_at, imported)
    gaps.phase("load_starter", imported, loaded)

    started = time.perf_counter()
    await until(lambda: bool(studio.activity.building or studio.activity.ready), studio.activity_changed)
    await until(lambda: not studio.activity.building, studio.activity_changed)
    if not studio.activity.ready:
        raise RuntimeError("no plan was built")
    gaps.phase("plan_build", started, time.perf_counter())

    await asyncio.sleep(1)  # the converter's process takes a moment to be gone
    started = time.perf_counter()
    await asyncio.sleep(seconds)
    gaps.phase("idle", started, time.perf_counter())

    for name, backend, plan in (
        ("starter_eager", Backend.EAGER, "eager"),
        ("starter_plan", Backend.OPENVINO, "openvino-static"),
    ):
        form.backend = backend
        started = time.perf_counter()
        while time.perf_counter() < started + seconds:
            await driven.run()
        gaps.phase(name, started, time.perf_counter())
        if driven.heard[-3].plan != plan:
            raise RuntimeError(f"this was to run {plan}, not {driven.heard[-3].plan}")


def _import_and_load(driven: Driven) -> tuple[float, float]:
    """When the import was over, and when the load was over and the prompt encoded."""
    from engine.events import Loading, Step

    imported = next(event.at for event in driven.heard if event.kind is Loading and event.what != "torch")
    first = next(event for event in driven.heard if event.kind is Step)
    return imported, first.at - first.seconds


if __name__ == "__main__":
    main()
