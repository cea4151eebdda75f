"""Inside a plan's process: a component of a model, compiled and run by torch.compile with the inductor backend."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


class InductorModule:
    """One compiled component. Arrays in are f32 or int64; the answer is f32."""

    def __init__(
        self, folder: str, component: str, inputs: tuple[tuple[tuple[int, ...], str], ...], cache: str, device: str,
        threads: int, adapted: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Load and compile, and run once with empty inputs so that nothing is left to compile."""
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # torch reads it as it is imported
        from engine.importing import import_torch

        import_torch()
        import torch
        import torch._inductor.config as inductor

        from engine.lora.adapted import with_adapters
        from engine.models.components import Component, as_function
        from engine.models.load import load_module

        if threads:
            torch.set_num_threads(threads)
        # Weights become constants of the graph: folded, and laid out once as the kernels want them.
        inductor.freezing = True
        self._torch, self._device = torch, device
        dtype = torch.float32 if device == "cpu" else torch.float16
        part = Component(component)
        module = with_adapters(as_function(part, load_module(Path(folder), part.folder, dtype, device)), adapted)
        self._module = torch.compile(module, dynamic=False, mode=None if device == "cpu" else "reduce-overhead")
        self._dtypes = [dtype if name == "float32" else getattr(torch, name) for _, name in inputs]
        self.start([torch.ones(shape, dtype=getattr(torch, name)).numpy() for shape, name in inputs])
        self.wait()

    def start(self, arrays: list[Any]) -> None:
        torch = self._torch
        self._tensors = [
            torch.from_numpy(array).to(self._device, dtype) for array, dtype in zip(arrays, self._dtypes, strict=True)
        ]

    def wait(self) -> Any:
        with self._torch.no_grad():
            return self._module(*self._tensors).float().cpu().numpy()

    def interrupt(self) -> None:
        """A compiled graph can't be left in the middle; who can't wait ends the process."""
