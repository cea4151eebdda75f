"""How soon the program is there, and how soon it is gone: `python -m tests.benchmarks.startup --json`.

Keys: help_s, `safelight --help` (median); first_paint_ratio, from the start of the process to the first paint of the
window's frame, as a multiple of what an empty QMainWindow takes (first_paint_s and bare_paint_s, medians, taken in
turn; full_paint_s is when the frame has been filled); close_s, from the window's being closed in the middle of a run
until the process and all its children are gone (the worst; closed in turn while torch and the model are loading, and
while steps are made and plans built beside them).
Asked: help_s at most 0.5, first_paint_ratio at most 2.5, close_s at most 2.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

import psutil

from tests.benchmarks.measure import child_environment, options, progress, report

MODULE = "tests.benchmarks.first_paint"
MOMENTS = ("loading", "step")  # when the window is closed: at the first such event
GONE_SECONDS = 60


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="of --help and of first paints")
    parser.add_argument("--closes", type=int, default=6, metavar="N", help="times that the window is closed in a run")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="safelight-bytecode-") as bytecode:
        help_s = statistics.median([_help(bytecode) for _ in range(chosen.rounds + 1)][1:])
        progress(f"--help: {help_s:.3f} s")
        results = {"help_s": help_s, **_first_paints(chosen.rounds, bytecode)}
    report(results | _closes(chosen.closes), chosen.json)


def _help(bytecode: str) -> float:
    started = time.monotonic()
    command = [sys.executable, "-m", "app", "--help"]
    subprocess.run(command, stdout=subprocess.DEVNULL, env=os.environ | _installed(bytecode), check=True)
    return time.monotonic() - started


def _installed(bytecode: str) -> dict[str, str]:
    """Variables for a child whose modules are compiled in advance, as those of an installed program are."""
    return {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}


def _first_paints(rounds: int, bytecode: str) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {"ours": [], "full": [], "bare": []}
    for number in range(-1, rounds):  # the first round warms the caches, of bytecode and of files
        for kind, counted in (("ours", ("ours", "full")), ("bare", ("bare",))):
            for what, paint in zip(counted, _paints(kind, len(counted), bytecode), strict=True):
                if number >= 0:
                    seconds[what].append(paint)
                    progress(f"first paint, {what}: {paint:.3f} s")
    ours, full, bare = (statistics.median(seconds[what]) for what in ("ours", "full", "bare"))
    return {"first_paint_ratio": ours / bare, "first_paint_s": ours, "full_paint_s": full, "bare_paint_s": bare}


def _paints(kind: str, count: int, bytecode: str) -> list[float]:
    """When the child says, `count` times, that it has painted: seconds since it was started."""
    with tempfile.TemporaryDirectory(prefix="safelight-benchmark-") as home:
        started = time.monotonic()
        child = _open([kind], child_environment(home) | _installed(bytecode))
        try:
            return [_time_said(child) - started for _ in range(count)]
        finally:
            _end(child)


def _closes(count: int) -> dict[str, Any]:
    seconds: dict[str, list[float]] = {moment: [] for moment in MOMENTS}
    for number in range(count):
        moment = MOMENTS[number % len(MOMENTS)]
        taken = _close(moment)
        seconds[moment].append(taken)
        progress(f"closed while {moment}: {taken:.3f} s")
    each = {f"close_{moment}_s": max(taken) for moment, taken in seconds.items() if taken}
    return {"close_s": max(each.values()), **each}


def _close(moment: str) -> float:
    with tempfile.TemporaryDirectory(prefix="safelight-benchmark-") as home:
        child = _open(["close", moment], child_environment(home))
        try:
            closed = _time_said(child)
            family = [child.pid, *(process.pid for process in psutil.Process(child.pid).children(recursive=True))]
            status = child.wait(GONE_SECONDS)
            psutil.wait_procs([psutil.Process(pid) for pid in family if psutil.pid_exists(pid)], GONE_SECONDS)
            gone = time.monotonic()
        finally:
            _end(child)
    if status != 0:
        raise RuntimeError(f"the program ended with status {status}")
    return gone - closed


def _open(arguments: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", MODULE, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def _time_said(child: subprocess.Popen[str]) -> float:
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise RuntimeError(f"the window didn't open: status {child.wait()}")
    return float(line)


def _end(child: subprocess.Popen[str]) -> None:
    child.kill()
    child.wait()
    if child.stdout is not None:
        child.stdout.close()


if __name__ == "__main__":
    main()
