"""What it costs to move a LoRA's slider and to put another LoRA in its place, and that neither builds a plan.

    python -m tests.benchmarks.lora                             the bundled model; some minutes
    python -m tests.benchmarks.lora --model sd15 --latent 32    an SD 1.5-sized model with random weights; an hour
    python -m tests.benchmarks.lora --no-rival                  ours alone

Ours is measured by the engine's public face: from asking for a picture to the end of its first step, with everything
as before, with another strength, and with another LoRA file. The rival is diffusers' UNet with `enable_lora_hotswap`
and torch.compile: from its `set_adapters`, or `load_lora_adapter(hotswap=True)`, to the end of the next prediction. It
can run where a C++ compiler is found. LoRAs have random weights on every linear attention layer, ranks 8 and 4.

Keys: step_ms (nothing changed), strength_change_ms, swap_ms, plans_built (by all changes; asked: 0), first_build_s (of
the plans with LoRAs), and the same of the rival as hotswap_step_ms, hotswap_strength_change_ms, hotswap_swap_ms,
hotswap_recompiles, hotswap_compile_s; or hotswap, a sentence saying why it didn't run. Medians over rounds.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.engine import Engine
from engine.events import EngineActivity, Event, Step
from engine.importing import import_torch
from engine.models.description import describe
from engine.plans import inductor
from engine.request import Backend, EngineSettings, GenerationRequest, LoraUse
from tests.benchmarks.measure import add_model_folder, options, place, prepare_environment, progress, report

RANKS = (8, 4)
LATENT = {"starter": 16, "sd15": 32}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--model", choices=tuple(LATENT), default="starter")
    parser.add_argument("--latent", type=int, metavar="N", help="side of the latents; 16 for starter, 32 for sd15")
    parser.add_argument("--rounds", type=int, default=9, metavar="N", help="timed changes of each kind; 9")
    parser.add_argument("--no-rival", action="store_true", help="don't run diffusers' hotswap")
    parser.add_argument("--plans", type=Path, metavar="FOLDER", help="keep plans here; temporary if left out")
    add_model_folder(parser)
    chosen = parser.parse_args()
    prepare_environment()
    import_torch()
    latent = chosen.latent or LATENT[chosen.model]
    with place(chosen.sd15) as model_place, place(chosen.plans) as plans, place(None) as files:
        model = _model_folder(chosen.model, model_place)
        progress("writing two LoRAs")
        loras = _write_loras(model, files)
        results: dict[str, Any] = {"model": chosen.model, "latent": latent}
        results |= ours(chosen.model if chosen.model == "starter" else str(model), loras, plans, latent, chosen.rounds)
        if (reason := _why_no_rival(chosen.no_rival)) is not None:
            results["hotswap"] = reason
        else:
            results |= rival(model, loras, latent, chosen.rounds)
    report(results, chosen.json)


def _model_folder(name: str, place_: Path) -> Path:
    if name == "starter":
        return describe("starter").folder
    from tests.benchmarks.sd15 import write_model

    return write_model(place_)


def _why_no_rival(left_out: bool) -> str | None:
    return "left out" if left_out else inductor.why_unavailable()


def _write_loras(model: Path, folder: Path) -> list[Path]:
    """Files in diffusers' layout of today, which both read."""
    import torch
    from safetensors.torch import save_file

    from engine.lora.layout import attention_layers, shapes_for
    from engine.models.load import load_module

    unet = load_module(model, "unet")
    files = []
    for rank in RANKS:
        draw = torch.Generator().manual_seed(rank)
        tensors = {}
        for layer in attention_layers(unet):
            part = unet.get_submodule(layer)
            if isinstance(part, torch.nn.Linear):
                down, up = shapes_for(part, rank)
                tensors[f"unet.{layer}.lora_A.weight"] = torch.randn(down, generator=draw) * 0.02
                tensors[f"unet.{layer}.lora_B.weight"] = torch.randn(up, generator=draw) * 0.02
        files.append(folder / f"rank{rank}.safetensors")
        save_file(tensors, files[-1])
    return files


def ours(model: str, loras: list[Path], plans: Path, latent: int, rounds: int) -> dict[str, Any]:
    """Milliseconds to the end of the first step, and how many plans the changes built."""
    side = latent * 8
    built: list[tuple[str, ...]] = []
    resting = threading.Event()

    def hear(activity: EngineActivity) -> None:
        if activity.building:
            built.append(activity.building)
            resting.clear()
        else:
            resting.set()

    with Engine(EngineSettings(plan_folder=plans, previews=False)) as engine:

        def first_step(file: Path | None, strength: float) -> float:
            uses = () if file is None else (LoraUse(file=str(file), strength=strength),)
            request = GenerationRequest(
                prompt="a red apple",
                steps=1,
                width=side,
                height=side,
                model=model,
                backend=Backend.OPENVINO,
                loras=uses,
            )
            started, ended = time.perf_counter(), 0.0

            def on_event(event: Event) -> None:
                nonlocal ended
                if isinstance(event, Step):
                    ended = time.perf_counter()

            engine.generate(request, on_event=on_event)
            return (ended - started) * 1000

        progress("building plans with LoRAs")
        engine.generate(
            GenerationRequest(prompt="a", steps=1, width=side, height=side, model=model, backend=Backend.EAGER)
        )
        first_build = first_step(loras[0], 1.0) / 1000
        engine.on_activity(hear)
        resting.wait()
        built.clear()
        progress("changing strengths and LoRAs")
        taken: dict[str, list[float]] = {"step_ms": [], "strength_change_ms": [], "swap_ms": []}
        file, strength = loras[0], 1.0
        for number in range(-1, rounds):
            for what, times in taken.items():
                if what == "strength_change_ms":
                    strength = round(0.5 + 0.07 * (number % 7), 2)
                elif what == "swap_ms":
                    file = loras[1] if file == loras[0] else loras[0]
                milliseconds = first_step(file, strength)
                if number >= 0:
                    times.append(milliseconds)
        resting.wait()
        medians = {what: statistics.median(times) for what, times in taken.items()}
        return {**medians, "plans_built": len(built), "first_build_s": first_build}


def rival(model: Path, loras: list[Path], latent: int, rounds: int) -> dict[str, Any]:
    """The same changes in diffusers' UNet, compiled, with hot-swapped LoRAs."""
    import torch
    from torch._dynamo.utils import counters

    from engine.models.load import load_module

    progress("compiling diffusers' UNet with a LoRA")
    unet: Any = load_module(model, "unet")
    unet.enable_lora_hotswap(target_rank=max(RANKS))

    def load(file: Path, hotswap: bool) -> None:
        unet.load_lora_adapter(
            file.parent, weight_name=file.name, prefix="unet", adapter_name="default", hotswap=hotswap
        )

    load(loras[0], hotswap=False)
    torch._inductor.config.freezing = False  # its weights are to change
    compiled = torch.compile(unet, dynamic=False)
    channels, width = unet.config.in_channels, unet.config.cross_attention_dim
    inputs = torch.randn(2, channels, latent, latent), torch.tensor(500.0), torch.randn(2, 77, width)

    def step_after(change: Callable[[], None]) -> float:
        started = time.perf_counter()
        change()
        with torch.no_grad():
            compiled(*inputs, return_dict=False)
        return (time.perf_counter() - started) * 1000

    compile_ms = step_after(lambda: None)
    taken: dict[str, list[float]] = {"step_ms": [], "strength_change_ms": [], "swap_ms": []}
    graphs = 0
    at = 0
    for number in range(-1, rounds):
        for what, times in taken.items():
            if what == "step_ms":
                milliseconds = step_after(lambda: None)
            elif what == "strength_change_ms":
                strength = round(0.5 + 0.07 * (number % 7), 2)
                milliseconds = step_after(lambda strength=strength: unet.set_adapters(["default"], [strength]))
            else:
                at = 1 - at
                milliseconds = step_after(lambda file=loras[at]: load(file, hotswap=True))
            if number >= 0:
                times.append(milliseconds)
        if number < 0:
            graphs = counters["stats"]["unique_graphs"]
    medians = {f"hotswap_{what}": statistics.median(times) for what, times in taken.items()}
    recompiles = counters["stats"]["unique_graphs"] - graphs
    return {**medians, "hotswap_recompiles": recompiles, "hotswap_compile_s": compile_ms / 1000}


if __name__ == "__main__":
    main()
