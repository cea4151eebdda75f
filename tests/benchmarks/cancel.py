"""How long from a cancel until nothing of the engine runs any more: `python -m tests.benchmarks.cancel --json`.

Cancels pictures at random moments of each phase (model loading, text encoding, steps, VAE decode, plan building) and
waits until no thread of the engine and no child process of it is running, as the operating system sees them. Beside it
stands what polling once per step, as other programs do, would have taken from the same moments: the rest of the step,
or of the whole phase where there are no steps; the boundaries are those of an undisturbed run just before.

`--model sd15` cancels inside the steps of a full-size SD 1.5 UNet with random weights. Linux only.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from engine.engine import Engine
from engine.errors import OperationCancelled
from engine.events import Event
from engine.jobs import Job
from engine.request import Backend, EngineSettings, GenerationRequest
from tests.benchmarks.idle import thread_number, wait_until_idle

PHASES = ("load", "text", "steps", "decode", "build")
# Long enough to need many runs of the text encoder: chunks of 30 tokens.
LONG_PROMPT = " ".join(f"{colour} {thing}" for colour in ("red", "green", "blue", "golden", "white") for thing in (
    "apple", "cat", "dog", "house", "rocket", "crown", "robot", "boat", "frog", "cake", "bird", "tree"))  # fmt: skip


@dataclass
class Scenario:
    """A request whose cancels fall into one phase: from the event `begins` says so, for up to `seconds`."""

    phase: str
    request: GenerationRequest
    begins: Callable[[Event], bool]
    boundaries: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    polling: list[float] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return self.boundaries[-1]


class Clock:
    """Listens to a job: when its phase began, and when steps and the phase ended, in seconds from its beginning."""

    def __init__(self, begins: Callable[[Event], bool], phase: str) -> None:
        self._begins = begins
        self._phase = phase
        self.began = threading.Event()
        self.start = 0.0
        self.marks: list[float] = []
        self.built = False

    def hear(self, event: Event) -> None:
        now = time.perf_counter()
        self.built = self.built or event.kind == "building"
        if self.began.is_set():
            if self._ends_a_part(event):
                self.marks.append(now - self.start)
        elif self._begins(event):
            self.start = now
            self.began.set()

    def _ends_a_part(self, event: Event) -> bool:
        if self._phase in ("load", "text", "build"):
            return event.kind == "step" and not self.marks
        return event.kind == ("step" if self._phase == "steps" else "finished")


def summary(scenario: Scenario, model: str, backend: str) -> dict[str, object]:
    steps = [b - a for a, b in zip([0.0, *scenario.boundaries], scenario.boundaries, strict=False)]
    return {
        "model": model, "backend": backend, "phase": scenario.phase, "cancels": len(scenario.latencies),
        "p50_ms": _ms(statistics.median(scenario.latencies)), "p99_ms": _ms(_quantile(scenario.latencies, 0.99)),
        "max_ms": _ms(max(scenario.latencies)), "step_ms": _ms(statistics.median(steps)),
        "polling_p99_ms": _ms(_quantile(scenario.polling, 0.99)),
    }  # fmt: skip


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)


def _quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[math.ceil(share * len(ordered)) - 1]  # nearest rank


def calibrate(engine: Engine, scenario: Scenario, request: GenerationRequest) -> bool:
    """One undisturbed run: when the parts of the phase end. Returns whether it waited for plans."""
    clock = Clock(scenario.begins, scenario.phase)
    engine.generate(request, on_event=clock.hear)
    scenario.boundaries = clock.marks
    return clock.built


def cancel_once(engine: Engine, scenario: Scenario, request: GenerationRequest) -> None:
    clock = Clock(scenario.begins, scenario.phase)
    moment = random.uniform(0, scenario.seconds)
    job = engine.submit(request, clock.hear)
    clock.began.wait()
    time.sleep(max(0.0, clock.start + moment - time.perf_counter()))
    cancelled = time.perf_counter()
    job.cancel()
    if not _was_cancelled(job):
        scenario.boundaries = clock.marks  # done before the cancel, so not a sample: an undisturbed run
        return
    wait_until_idle(engine, thread_number())
    scenario.latencies.append(time.perf_counter() - cancelled)
    at = cancelled - clock.start
    after = scenario.boundaries[bisect_right(scenario.boundaries, at) :] or [at]
    scenario.polling.append(after[0] - at)


def _was_cancelled(job: Job) -> bool:
    try:
        job.result()
    except OperationCancelled:
        return True
    return False


def _tell(scenario: Scenario) -> None:
    if (done := len(scenario.latencies)) and done % 10 == 0:
        print(f"{scenario.phase}: {done} cancels", end="\r", file=sys.stderr, flush=True)


def scenarios(model: str, backend: Backend) -> list[Scenario]:
    base = GenerationRequest(prompt="a red apple, 3d style", model=model, backend=backend, steps=20, seed=1)
    if model != "starter":
        large = base.model_copy(update={"width": 256, "height": 256, "steps": 4})
        return [Scenario("steps", large, lambda e: e.kind == "loading" or (e.kind == "queued"))]
    waiting = "building" if backend is Backend.OPENVINO else "queued"
    short = {"steps": 1}
    return [
        Scenario("load", base.model_copy(update=short), lambda e: e.kind == "loading"),
        Scenario("text", base.model_copy(update={"prompt": LONG_PROMPT, **short}), lambda e: e.kind == "queued"),
        Scenario("steps", base, lambda e: e.kind == "step"),
        Scenario(
            "decode", base.model_copy(update={"width": 512, "height": 512, **short}), lambda e: e.kind == "decoding"
        ),
        *(
            [Scenario("build", base.model_copy(update=short), lambda e: e.kind == waiting)]
            if waiting == "building"
            else []
        ),
    ]


def measure(model: str, backend: Backend, cancels: int, phases: list[str], plans: Path) -> list[dict[str, object]]:
    results = []
    settings = EngineSettings(plan_folder=plans, previews=True, build_plans=False)
    for scenario in scenarios(model, backend):
        if scenario.phase not in phases:
            continue
        if scenario.phase in ("load", "build"):
            _measure_fresh(scenario, settings, cancels)
        else:
            with Engine(settings) as engine:
                engine.generate(scenario.request)
                numbers = count()
                # a run that waits for plans takes many times as long, and most cancels would come after its like
                while calibrate(engine, scenario, _unseen(scenario.request, next(numbers))):
                    continue
                for number in numbers:
                    if len(scenario.latencies) >= cancels:
                        break
                    cancel_once(engine, scenario, _unseen(scenario.request, number))
                    _tell(scenario)
        results.append(summary(scenario, model if model == "starter" else "sd15", backend))
        print(json.dumps(results[-1]), file=sys.stderr, flush=True)
    return results


def _unseen(request: GenerationRequest, number: int) -> GenerationRequest:
    """The request with a prompt that was not encoded yet."""
    return request.model_copy(update={"prompt": f"{number} {request.prompt}", "seed": number})


def _measure_fresh(scenario: Scenario, settings: EngineSettings, cancels: int) -> None:
    """A new engine for every cancel. Building is measured half with converted models stored, half with nothing, where
    each cancel takes half a conversion of the whole model.
    """
    with Engine(settings.model_copy(update={"plan_folder": None})) as engine:
        engine.generate(scenario.request.model_copy(update={"backend": Backend.EAGER}))  # imports torch, as none later
    if scenario.phase == "load":
        _cancel_fresh_engines(scenario, settings, cancels)
        return
    with tempfile.TemporaryDirectory() as stored:
        kept = settings.model_copy(update={"plan_folder": Path(stored)})
        with Engine(kept) as engine:
            engine.generate(scenario.request)
        _cancel_fresh_engines(scenario, kept, cancels - cancels // 2)
    bare = settings.model_copy(update={"plan_folder": None})
    _cancel_fresh_engines(scenario, bare, cancels)


def _cancel_fresh_engines(scenario: Scenario, settings: EngineSettings, until: int) -> None:
    with Engine(settings) as engine:
        calibrate(engine, scenario, scenario.request)
    while len(scenario.latencies) < until:
        with Engine(settings) as engine:
            cancel_once(engine, scenario, scenario.request)
        _tell(scenario)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["starter", "sd15"], default="starter")
    parser.add_argument("--backend", choices=["eager", "openvino"], action="append")
    parser.add_argument("--phase", choices=PHASES, action="append")
    parser.add_argument("--cancels", type=int, help="in each phase; 100, or 30 for sd15")
    parser.add_argument("--plans", type=Path, help="keep converted models here; else in a temporary folder")
    parser.add_argument("--models", type=Path, help="keep the random SD 1.5 model here; else in a temporary folder")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    options = parser.parse_args(arguments)
    random.seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        model = "starter"
        if options.model == "sd15":
            from tests.benchmarks.sd15 import write_model

            model = str(write_model(options.models or Path(temporary) / "models"))
        results = []
        for name in options.backend or ["eager", "openvino"]:
            cancels = options.cancels or (100 if model == "starter" else 30)
            plans = options.plans or Path(temporary) / "plans"
            results += measure(model, Backend(name), cancels, options.phase or list(PHASES), plans)
    if options.json:
        print(json.dumps({"cancel": results}))
    else:
        for result in results:
            print(result)


if __name__ == "__main__":
    main()
