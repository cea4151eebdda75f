"""What a host adds to a plan, and what plans cost to build, to find again, and to build for a second size.

    python -m tests.benchmarks.hosts                    everything; a minute or two
    python -m tests.benchmarks.hosts --only fast-path   or: builds

fast-path: a host around a plan that answers at once with its first input, asked as at every denoising step, against
the plan called directly; in turn, in one process.
builds: the bundled model's OpenVINO plans (text encoder, noise predictor, VAE decoder) by the engine's public face,
from the moment a picture begins to wait for them to the moment its first step starts, torch imported and the model
loaded before. First in an empty plan folder, then for a second size, then for the first size in a second process.

Keys: fast_path_us and fast_path_async_us (added to a call, medians over rounds), direct_us and direct_async_us (the
plan alone), first_build_s, second_size_s, second_process_s, second_size_ratio and second_process_ratio (of
first_build_s). Asked: fast_path_us at most 20, fast_path_async_us at most 150, second_size_ratio at most 0.1,
second_process_ratio at most 0.15.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.cancellation import CancellationToken
from engine.engine import Engine
from engine.events import Building, Event, Step
from engine.importing import import_torch
from engine.request import Backend, EngineSettings, GenerationRequest
from tests.benchmarks.measure import options, place, prepare_environment, progress, report

if TYPE_CHECKING:
    import torch

    from engine.plans.plan import Plan, Signature

ROUNDS, CALLS = 31, 1000
SIDES = (128, 160)
PARTS = ("fast-path", "builds")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--only", choices=PARTS, help="measure this part alone")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N", help=f"rounds of {CALLS} calls; {ROUNDS}")
    parser.add_argument("--plans", type=Path, metavar="FOLDER", help="an empty plan folder; temporary if left out")
    parser.add_argument("--build", type=int, nargs="+", metavar="SIDE", help="in a child: build for these sizes only")
    chosen = parser.parse_args()
    prepare_environment()
    if chosen.build:
        report({"seconds": seconds_of_builds(chosen.plans, chosen.build)}, as_json=True)
        return
    results: dict[str, Any] = {}
    if chosen.only in (None, "fast-path"):
        progress("measuring the fast path")
        results |= fast_path(chosen.rounds)
    if chosen.only in (None, "builds"):
        with place(chosen.plans) as plans:
            results |= builds(plans)
    report(results, chosen.json)


class Echo:
    """A plan that answers at once with its first input."""

    kind = "echo"
    is_alive = True

    def execute(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        return inputs[0]

    async def execute_async(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        return inputs[0]

    def close(self) -> None:
        return


def fast_path(rounds: int) -> dict[str, float]:
    """Microseconds that a host adds to a call of a plan, and those of the plan's call itself."""
    import_torch()
    import torch

    from engine.hosts.host import CompiledModelHost
    from engine.plans.plan import Signature

    plan = Echo()

    def build(signature: Signature, token: CancellationToken) -> Future[Plan]:
        future: Future[Plan] = Future()
        future.set_result(plan)
        return future

    host = CompiledModelHost("noise predictor", build)
    inputs = (torch.zeros(2, 4, 16, 16), torch.tensor(500.0), torch.zeros(2, 77, 768))
    host.prepare(Signature.of(inputs), 0).result()
    host.predict(inputs, 0, plan)
    results: dict[str, float] = {}

    def hosted(calls: int) -> None:
        for _ in range(calls):
            host.predict(inputs, 0, plan)

    def direct(calls: int) -> None:
        for _ in range(calls):
            plan.execute(inputs)

    async def hosted_async(calls: int) -> None:
        for _ in range(calls):
            await host.predict_async(inputs, 0, plan)

    async def direct_async(calls: int) -> None:
        for _ in range(calls):
            await plan.execute_async(inputs)

    async def measure() -> None:
        added: dict[str, list[float]] = {"": [], "_async": []}
        alone: dict[str, list[float]] = {"": [], "_async": []}
        for number in range(-1, rounds):
            started = time.perf_counter()
            direct(CALLS)
            direct_done = time.perf_counter()
            hosted(CALLS)
            hosted_done = time.perf_counter()
            await direct_async(CALLS)
            direct_async_done = time.perf_counter()
            await hosted_async(CALLS)
            hosted_async_done = time.perf_counter()
            if number < 0:
                continue
            alone[""].append(direct_done - started)
            added[""].append(hosted_done - direct_done - alone[""][-1])
            alone["_async"].append(direct_async_done - hosted_done)
            added["_async"].append(hosted_async_done - direct_async_done - alone["_async"][-1])
        for way in added:
            results[f"fast_path{way}_us"] = statistics.median(added[way]) / CALLS * 1e6
            results[f"direct{way}_us"] = statistics.median(alone[way]) / CALLS * 1e6

    asyncio.run(measure())
    asked = 2 * (rounds + 1) * CALLS
    if host.counters.fast_hits != asked:
        raise RuntimeError(f"the fast path wasn't taken at each of {asked} calls: {host.counters}")
    host.close()
    return results


def builds(plans: Path) -> dict[str, float]:
    """Seconds that a first build, a second size and a second process take, each in a process as the program has it."""
    if plans.is_dir() and any(plans.iterdir()):
        raise SystemExit(f"{plans} holds something; a first build needs an empty folder.")
    progress(f"building for {SIDES[0]}×{SIDES[0]}, then for {SIDES[1]}×{SIDES[1]}")
    first, second_size = _in_process(plans, SIDES)
    progress("building in a second process")
    (second_process,) = _in_process(plans, SIDES[:1])
    return {
        "first_build_s": first,
        "second_size_s": second_size,
        "second_process_s": second_process,
        "second_size_ratio": second_size / first,
        "second_process_ratio": second_process / first,
    }


def _in_process(plans: Path, sides: Sequence[int]) -> list[float]:
    command = [sys.executable, "-m", "tests.benchmarks.hosts", "--plans", str(plans), "--build", *map(str, sides)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])["seconds"]
    return seconds


def seconds_of_builds(plans: Path, sides: Sequence[int]) -> list[float]:
    """How long a picture of each size waits for its plans, in this process and one after the other."""
    settings = EngineSettings(plan_folder=plans, previews=False, build_plans=False)
    with Engine(settings) as engine:
        request = GenerationRequest(prompt="a red apple", steps=1)
        engine.generate(request.model_copy(update={"backend": Backend.EAGER}))
        return [_wait_for_plans(engine, request.model_copy(update={"width": side, "height": side})) for side in sides]


def _wait_for_plans(engine: Engine, request: GenerationRequest) -> float:
    began: list[float] = []
    ended: list[float] = []

    def hear(event: Event) -> None:
        if isinstance(event, Building):
            began.append(time.perf_counter())
        elif isinstance(event, Step):
            ended.append(time.perf_counter() - event.seconds)

    finished = engine.generate(request.model_copy(update={"backend": Backend.OPENVINO}), on_event=hear)
    if not began or not finished.made_with.plan.startswith("openvino"):
        raise RuntimeError(f"no plan was waited for: {finished.made_with}")
    return ended[0] - began[0]


if __name__ == "__main__":
    main()
