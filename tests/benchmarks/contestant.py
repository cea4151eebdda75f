"""One way of making SDXL pictures, in a process of its own that makes one whenever it is told to.

Lines of JSON in: {"steps": n, "round": n}. Out: {"compile_s": s} once ready, then {"seconds": s} for each picture, the
pixels of which lie in a file by then. The parent samples the memory of the process and of its children.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

SAMPLE_SECONDS = 0.1
SEED = 7
GUIDANCE = 5.0


class Contestant:
    """The process, warm once the object is there. Leaving the `with` block ends it."""

    def __init__(self, name: str, folder: Path, scratch: Path, latent: int, threads: int) -> None:
        self._picture = scratch / f"{name}.rgb"
        arguments = [name, str(folder), str(scratch / name), str(self._picture), str(latent), str(threads)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.contestant", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.peak_rss = 0
        self._ended = threading.Event()
        self._sampler = threading.Thread(target=self._sample, daemon=True)
        self._sampler.start()
        self.compile_s: float = self._receive()["compile_s"]
        self.peak_rss_with_compiling, self.peak_rss = self.peak_rss, 0

    def make(self, steps: int, number: int) -> float:
        """Make a picture, of the prompt with this number; returns the seconds that it took."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"steps": steps, "round": number}) + "\n")
        self._process.stdin.flush()
        seconds: float = self._receive()["seconds"]
        self.peak_rss_with_compiling = max(self.peak_rss_with_compiling, self.peak_rss)
        return seconds

    def last_picture(self) -> bytes:
        """8-bit RGB, row by row."""
        return self._picture.read_bytes()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a contestant ended with status {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _sample(self) -> None:
        process = psutil.Process(self._process.pid)
        while not self._ended.wait(SAMPLE_SECONDS):
            total = 0
            try:
                for part in (process, *process.children(recursive=True)):
                    total += part.memory_info().rss
            except psutil.Error:  # a child that ended meanwhile
                continue
            self.peak_rss = max(self.peak_rss, total)

    def __enter__(self) -> Contestant:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._sampler.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


# In the child process. Each way loads, compiles, and returns the seconds of compiling and what makes a picture.

Make = Callable[[int, str], bytes]


def _diffusers(folder: Path, side: int, compiled: bool) -> tuple[float, Make]:
    import torch
    from diffusers import StableDiffusionXLPipeline

    torch.set_grad_enabled(False)
    if compiled:
        import torch._inductor.config as inductor

        inductor.freezing = True
    pipeline = StableDiffusionXLPipeline.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)

    def make(steps: int, prompt: str) -> bytes:
        generator = torch.Generator().manual_seed(SEED)
        picture = pipeline(prompt, height=side, width=side, num_inference_steps=steps, guidance_scale=GUIDANCE,
                           generator=generator, output_type="pil").images[0]  # fmt: skip
        pixels: bytes = picture.tobytes()
        return pixels

    _use_faster_layout(pipeline, make)
    if compiled:
        pipeline.unet = torch.compile(pipeline.unet, dynamic=False)
        pipeline.vae.decode = torch.compile(pipeline.vae.decode, dynamic=False)
    first, second = _seconds(lambda: make(1, "warm up")), _seconds(lambda: make(1, "warm up"))
    return max(first - second, 0.0) if compiled else 0.0, make


def _use_faster_layout(pipeline: Any, make: Make) -> None:
    import torch

    taken = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        pipeline.unet.to(memory_format=layout)
        pipeline.vae.to(memory_format=layout)
        make(1, "warm up")
        taken[layout] = _seconds(lambda: make(1, "warm up"))
    faster = min(taken, key=lambda layout: taken[layout])
    pipeline.unet.to(memory_format=faster)
    pipeline.vae.to(memory_format=faster)


def _ours(folder: Path, plans: Path, side: int, threads: int, asynchronous: bool) -> tuple[float, Make]:
    from engine.engine import Engine
    from engine.events import Event, Loading, Step
    from engine.request import Backend, EngineSettings, GenerationRequest, Sampler

    engine = Engine(EngineSettings(plan_folder=plans, previews=False, build_plans=False, threads=threads))
    loop = asyncio.new_event_loop()
    moments = {"loaded": 0.0, "stepped": 0.0}

    def hear(event: Event) -> None:
        if isinstance(event, Loading):
            moments["loaded"] = time.perf_counter()
        elif isinstance(event, Step):
            moments["stepped"] = time.perf_counter() - event.seconds

    def make(steps: int, prompt: str, on_event: Callable[[Event], None] | None = None) -> bytes:
        request = GenerationRequest(
            prompt=prompt, width=side, height=side, steps=steps, guidance_scale=GUIDANCE, sampler=Sampler.DDIM,
            seed=SEED, model=str(folder), backend=Backend.OPENVINO,
        )  # fmt: skip
        if asynchronous:
            return loop.run_until_complete(engine.generate_async(request, on_event=on_event)).image.pixels
        return engine.generate(request, on_event=on_event).image.pixels

    make(1, "warm up", hear)
    make(1, "warm up")
    return moments["stepped"] - moments["loaded"], make


def _seconds(run: Callable[[], object]) -> float:
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


CONTESTANTS = ("eager", "torch_compile", "sync", "async")


def main(name: str, folder: Path, plans: Path, picture: Path, latent: int, threads: int) -> None:
    from engine.importing import import_torch

    import_torch()
    import torch

    torch.set_num_threads(threads)
    if name in ("eager", "torch_compile"):
        compile_s, make = _diffusers(folder, 8 * latent, name == "torch_compile")
    else:
        compile_s, make = _ours(folder, plans, 8 * latent, threads, name == "async")
    print(json.dumps({"compile_s": compile_s}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        started = time.perf_counter()
        pixels = make(asked["steps"], f"a pear on a table, number {asked['round']}")
        seconds = time.perf_counter() - started
        picture.write_bytes(pixels)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), Path(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6]))
