"""What reduced weights save and cost: memory at rest and at its peak, time of a step, error; full, half and int8.

    python -m tests.benchmarks.weights                                       the bundled model
    python -m tests.benchmarks.weights --model sd15 --sd15 /data/sd15        an SD 1.5-sized model with random weights

Memory is measured on the whole program: an engine in a process of its own, per kind of weights, makes a picture of
one step with OpenVINO plans that it has to build, and rests. Steps are the noise predictor's, on a batch of two,
through its plans' hosts, run in turn in one process.

Keys, each with _full, _half and _int8: rest_mb (PSS of all processes, after the picture), peak_mb (the most that all
processes held at once of what can't be taken back, anonymous pages, sampled from before loading to the end),
wait_s (from asking for the picture to having it), step_s (median); with _half and _int8: step_ratio (of step_s_full),
max_rel_diff and rms_rel_diff (of one evaluation, against full), pixel_diff (the largest of the picture's 8-bit values,
against full), rest_ratio and peak_ratio. Linux only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from engine.importing import import_torch
from engine.request import Backend, EngineSettings, Weights
from tests.benchmarks.measure import (
    add_model_folder,
    interleaved,
    options,
    place,
    prepare_environment,
    progress,
    report,
)

SAMPLED_SECONDS = 0.05


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--model", choices=("starter", "sd15"), default="starter")
    parser.add_argument("--latent", type=int, metavar="N", help="side of the latents; 16 for starter, 32 for sd15")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="timed steps of each; 21 and 5")
    parser.add_argument("--plans", type=Path, metavar="FOLDER", help="keep converted models here, to be found again")
    parser.add_argument("--only", choices=("memory", "steps"), help="leave the other out")
    parser.add_argument("--run", choices=tuple(Weights), help="what each process of the memory measurement does")
    parser.add_argument("--name", help="the model's name or folder, for --run")
    add_model_folder(parser)
    chosen = parser.parse_args()
    prepare_environment()
    starter = chosen.model == "starter"
    latent = chosen.latent or (16 if starter else 32)
    if chosen.run:
        print(json.dumps(one_picture(chosen.name, latent, chosen.plans, Weights(chosen.run))))
        return
    with contextlib.ExitStack() as stack:
        name = "starter" if starter else str(_written(stack.enter_context(place(chosen.sd15))))
        plans = stack.enter_context(place(chosen.plans))
        results: dict[str, Any] = {"model": chosen.model, "latent": latent}
        if chosen.only != "steps":
            results |= memory(name, latent, plans)
        if chosen.only != "memory":
            results |= asyncio.run(steps(name, latent, chosen.rounds or (21 if starter else 5), plans))
    report(results, chosen.json)


def _written(folder: Path) -> Path:
    import_torch()
    from tests.benchmarks.sd15 import write_model

    progress(f"the model is in {folder}")
    return write_model(folder)


def memory(name: str, latent: int, plans: Path) -> dict[str, Any]:
    """What the whole program holds, each kind in a process of its own."""
    results: dict[str, Any] = {}
    pixels: dict[Weights, bytes] = {}
    for weights in Weights:
        progress(f"a picture with {weights} weights")
        command = [sys.executable, "-m", "tests.benchmarks.weights", "--run", weights, "--name", name]
        command += ["--latent", str(latent), "--plans", str(plans)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        told = json.loads(done.stdout.splitlines()[-1])
        pixels[weights] = base64.b64decode(told.pop("pixels"))
        results |= {f"{key}_{weights}": value for key, value in told.items()}
    for weights in (Weights.HALF, Weights.INT8):
        pairs = zip(pixels[Weights.FULL], pixels[weights], strict=True)
        results[f"pixel_diff_{weights}"] = max(abs(a - b) for a, b in pairs)
        for key in ("rest", "peak"):
            results[f"{key}_ratio_{weights}"] = results[f"{key}_mb_{weights}"] / results[f"{key}_mb_full"]
    return results


def one_picture(name: str, latent: int, plans: Path, weights: Weights) -> dict[str, Any]:
    """Make one picture in this process, and tell what was held."""
    from engine.engine import Engine
    from engine.models.description import describe

    defaults = describe(name).defaults
    side = latent * 8
    update = {"steps": 1, "width": side, "height": side, "prompt": "a red apple", "backend": Backend.OPENVINO}
    settings = EngineSettings(plan_folder=plans, previews=False, build_plans=False, weights=weights)
    with Engine(settings) as engine, _Peak() as peak:
        started = time.perf_counter()
        finished = engine.generate(defaults.model_copy(update=update))
        waited = time.perf_counter() - started
        if finished.made_with.weights is not weights:
            raise RuntimeError(f"the picture was made with {finished.made_with}")
        rest = sum(_pss(process) for process in _processes())
    pixels = base64.b64encode(finished.image.pixels).decode()
    return {"rest_mb": rest / 1e6, "peak_mb": peak.most / 1e6, "wait_s": waited, "pixels": pixels}


class _Peak:
    """Within: samples what this process and its children hold."""

    def __init__(self) -> None:
        self.most = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._end.wait(SAMPLED_SECONDS):
            self.most = max(self.most, sum(_anonymous(process) for process in _processes()))

    def __enter__(self) -> _Peak:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._end.set()
        self._thread.join()


def _processes() -> list[psutil.Process]:
    own = psutil.Process()
    return [own, *own.children(recursive=True)]


def _pss(process: psutil.Process) -> int:
    return _proc(process, "smaps_rollup", "Pss:")


def _anonymous(process: psutil.Process) -> int:
    return _proc(process, "status", "RssAnon:")


def _proc(process: psutil.Process, file: str, key: str) -> int:
    """A number of /proc in bytes; 0 for a process that has just ended."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process.pid}/{file}").read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(key):
                return int(line.split()[1]) * 1024
    return 0


async def steps(name: str, latent: int, rounds: int, plans: Path) -> dict[str, Any]:
    """Steps of the noise predictor with each kind of weights, in turn, and how far apart their answers are."""
    import_torch()
    import torch

    from engine.models.components import Component
    from engine.models.description import describe, read_config
    from engine.plans.builder import PlanBuilder, PlanSource
    from engine.plans.plan import OPENVINO_STATIC, Plan, Signature

    description = describe(name)
    config = read_config(description.folder / "unet" / "config.json")
    draw = torch.Generator().manual_seed(0)
    latents = torch.randn(2, config["in_channels"], latent, latent, generator=draw)
    prompt = torch.randn(2, description.text_length, config["cross_attention_dim"], generator=draw)
    inputs = latents, torch.tensor(500.0), prompt
    builder, made = PlanBuilder(plans), {}
    try:
        for weights in Weights:
            progress(f"building the plan with {weights} weights")
            source = PlanSource(description.folder, Component.UNET, Component.UNET.folder, (), weights)
            future = builder.build(source, OPENVINO_STATIC, Signature.of(inputs), _never())
            plan: Plan = await asyncio.wrap_future(future)
            made[weights] = plan
        answers = {weights: (await plan.execute_async(inputs)).clone() for weights, plan in made.items()}
        progress("measuring steps")
        runs: dict[str, Callable[[], Any]] = {w: partial(plan.execute_async, inputs) for w, plan in made.items()}
        taken = await interleaved(runs, rounds)
    finally:
        for plan in made.values():
            plan.close()
        builder.close()
    results: dict[str, Any] = {f"step_s_{weights}": seconds for weights, seconds in taken.items()}
    full = answers[Weights.FULL]
    for weights in (Weights.HALF, Weights.INT8):
        apart = answers[weights] - full
        results[f"step_ratio_{weights}"] = taken[weights] / taken[Weights.FULL]
        results[f"max_rel_diff_{weights}"] = float(apart.abs().max() / full.abs().max())
        results[f"rms_rel_diff_{weights}"] = float(apart.square().mean().sqrt() / full.square().mean().sqrt())
    return results | {"rounds": rounds, "threads": torch.get_num_threads()}


def _never() -> Any:
    from engine.cancellation import CancellationToken

    return CancellationToken.none


if __name__ == "__main__":
    main()
