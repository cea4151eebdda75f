"""One evaluation of the noise predictor: diffusers' own, our eager host's, our OpenVINO plans', static and dynamic.

    python -m tests.benchmarks.denoise                                    the bundled model
    python -m tests.benchmarks.denoise --model sd15 --latent 32           an SD 1.5-sized UNet with random weights
    python -m tests.benchmarks.denoise --model sd15 --sd15 /data/sd15 --plans /data/plans     keep both for next time

All are warm, run in turn in one process, with as many threads as torch takes by itself, on a batch of two (negative
prompt and prompt). diffusers' UNet runs in the faster of the two memory formats. The plan is asked through its host,
so the way to its process and back is included.

Keys: eager_s, host_eager_s, plan_s and dynamic_plan_s (medians, a step each), speedup (eager_s / plan_s) and
dynamic_speedup, max_rel_diff (the largest max|a-b| / max|a| between any two), gemm_share (the plan's FLOP rate / that
of a bare 2048² f32 matrix product; FLOPs counted with attention as math). Asked: speedup at least 1.5 for the starter,
1.6 for sd15; max_rel_diff below 1e-4.
sd15 takes 15 GB of memory and some minutes for its conversion, the first time.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import itertools
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.importing import import_torch
from engine.models.description import ModelDescription, describe
from tests.benchmarks.measure import (
    add_model_folder,
    interleaved,
    options,
    place,
    prepare_environment,
    progress,
    report,
)

if TYPE_CHECKING:
    import torch

GEMM_SIDE = 2048
ASKED = {"starter": 1.5, "sd15": 1.6}

Run = Callable[[], Awaitable["torch.Tensor"]]


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--model", choices=tuple(ASKED), default="starter")
    parser.add_argument("--latent", type=int, metavar="N", help="side of the latents; 16 for starter, 32 for sd15")
    parser.add_argument("--rounds", type=int, default=0, metavar="N", help="timed runs of each; 21 and 5")
    parser.add_argument(
        "--plans", type=Path, metavar="FOLDER", help="keep converted models here; temporary if left out"
    )
    add_model_folder(parser)
    chosen = parser.parse_args()
    prepare_environment()
    starter = chosen.model == "starter"
    with contextlib.ExitStack() as stack:
        name = "starter"
        if not starter:
            name = str(_written(stack.enter_context(place(chosen.sd15))))
        plans = stack.enter_context(place(chosen.plans))
        latent = chosen.latent or (16 if starter else 32)
        rounds = chosen.rounds or (21 if starter else 5)
        results = asyncio.run(_measure(describe(name), latent, rounds, plans))
    report({"model": chosen.model, "latent": latent, **results, "asked_speedup": ASKED[chosen.model]}, chosen.json)


def _written(folder: Path) -> Path:
    import_torch()
    from tests.benchmarks.sd15 import write_model

    progress(f"the model is in {folder}")
    return write_model(folder)


async def _measure(description: ModelDescription, latent: int, rounds: int, plans: Path) -> dict[str, Any]:
    import_torch()
    import torch

    from engine.hosts.host import CompiledModelHost
    from engine.hosts.runner import Runner
    from engine.models.components import Component, as_function
    from engine.models.load import load_module
    from engine.plans.builder import PlanBuilder, PlanSource
    from engine.plans.eager import EagerStream
    from engine.plans.plan import EAGER, OPENVINO_DYNAMIC, OPENVINO_STATIC, Signature

    stream, builder = EagerStream(), PlanBuilder(plans)
    source = PlanSource(description.folder, Component.UNET, Component.UNET.folder)
    hosts = {
        kind: CompiledModelHost(
            Component.UNET, partial(builder.build, source, kind), open_sizes=kind == OPENVINO_DYNAMIC
        )
        for kind in (OPENVINO_STATIC, OPENVINO_DYNAMIC)
    }
    try:
        progress("loading the model")
        bare: dict[str, Any] = {"channels-last": load_module(description.folder, "unet")}
        bare["channels-last"].to(memory_format=torch.channels_last)
        hosted = _with_same_weights(bare["channels-last"])
        stream.watch(hosted)
        runner = Runner(Component.UNET, hosts, as_function(Component.UNET, hosted), stream)
        inputs = _inputs(hosted, description, latent)
        progress("building the plan")
        started = time.perf_counter()
        await asyncio.wrap_future(runner.prepare(Signature.of(inputs), OPENVINO_STATIC))
        build_s = time.perf_counter() - started
        await asyncio.wrap_future(runner.prepare(Signature.of(inputs), OPENVINO_DYNAMIC))
        bare["contiguous"] = load_module(description.folder, "unet")
        left = right = torch.randn(GEMM_SIDE, GEMM_SIDE)
        runs: dict[str, Run] = {
            "contiguous": lambda: _bare(bare["contiguous"], inputs),
            "channels-last": lambda: _bare(bare["channels-last"], inputs),
            "host_eager": lambda: runner.run(inputs, EAGER),
            "plan": lambda: runner.run(inputs, OPENVINO_STATIC),
            "dynamic_plan": lambda: runner.run(inputs, OPENVINO_DYNAMIC),
        }
        outputs = [(await run()).clone() for run in runs.values()]
        progress("measuring")
        taken = await interleaved({**runs, "gemm": lambda: _product(left, right)}, rounds)
        for kind, host in hosts.items():
            if host.counters.poisoned or host.counters.fast_hits < rounds:
                raise RuntimeError(f"the {kind} plan didn't answer: {host.counters}")
        flops = _count_flops(bare["contiguous"], inputs)
    finally:
        runner.close()
        builder.close()
        stream.close()
    layout = min(bare, key=lambda name: taken[name])
    gemm_rate = 2 * GEMM_SIDE**3 / taken["gemm"]
    return {
        "eager_s": taken[layout],
        "host_eager_s": taken["host_eager"],
        "plan_s": taken["plan"],
        "dynamic_plan_s": taken["dynamic_plan"],
        "speedup": taken[layout] / taken["plan"],
        "dynamic_speedup": taken[layout] / taken["dynamic_plan"],
        "max_rel_diff": max(_relative_difference(a, b) for a, b in itertools.permutations(outputs, 2)),
        "gemm_share": flops / taken["plan"] / gemm_rate,
        "eager_gemm_share": flops / taken[layout] / gemm_rate,
        "eager_layout": layout,
        "gemm_gflop_s": gemm_rate / 1e9,
        "step_gflop": flops / 1e9,
        "threads": torch.get_num_threads(),
        "build_s": build_s,
        "rounds": rounds,
    }


def _with_same_weights(module: Any) -> Any:
    """A copy of the module that shares its weights and buffers, so that hooks of one aren't hooks of the other."""
    shared = itertools.chain(module.parameters(), module.buffers())
    return copy.deepcopy(module, {id(tensor): tensor for tensor in shared})


def _inputs(unet: Any, description: ModelDescription, latent: int) -> tuple[torch.Tensor, ...]:
    import torch

    generator = torch.Generator().manual_seed(0)
    latents = torch.randn(2, unet.config.in_channels, latent, latent, generator=generator)
    prompt = torch.randn(2, description.text_length, unet.config.cross_attention_dim, generator=generator)
    return latents, torch.tensor(500.0), prompt


async def _bare(unet: Any, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    import torch

    with torch.inference_mode():
        answer: torch.Tensor = unet(*inputs, return_dict=False)[0]
    return answer


async def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    import torch

    with torch.inference_mode():
        return left @ right


def _count_flops(unet: Any, inputs: tuple[torch.Tensor, ...]) -> int:
    """Floating-point operations of one evaluation, a multiply-add as two, attention's products included."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        unet(*inputs, return_dict=False)
    return int(counter.get_total_flops())


def _relative_difference(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a - b).abs().max() / a.abs().max())


if __name__ == "__main__":
    main()
