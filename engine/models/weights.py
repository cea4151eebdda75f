"""The torch weights of one part of a model, which can be given up and read again.

Once a part's plans answer, its torch weights are a second copy that nobody runs. They are given up then, and read again
from the file, through its map, when an eager answer needs them after all.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch

from engine.models.load import fill


class PartWeights:
    """Weights of `part` ("text_encoder", "unet", "vae") of the model in `folder`; `module` is whole at first.

    `release` and `restore` belong on the stream that runs the module, so that no operator is at work meanwhile.
    """

    def __init__(self, module: torch.nn.Module, folder: Path, part: str) -> None:
        first = next(module.parameters())
        self._module = module
        self._source = (folder, part, first.dtype, str(first.device))
        self._lock = threading.Lock()
        self.bytes_in_f32 = sum(4 * parameter.numel() for parameter in module.parameters())
        self._present = True

    @property
    def are_present(self) -> bool:
        return self._present

    def release(self) -> None:
        """Give the parameters' memory back; buffers stay."""
        with self._lock:
            self._present = False
            for owner in self._module.modules():
                for name, parameter in owner._parameters.items():
                    if parameter is not None:
                        empty = torch.empty_like(parameter, device="meta")
                        owner._parameters[name] = torch.nn.Parameter(empty, requires_grad=False)
        _return_free_memory()

    def restore(self, checkpoint: Callable[[], None]) -> None:
        """Read released weights again. `checkpoint` is called between tensors and may raise; next time reads them all.

        Raises `ModelRefused` where the file is gone or was replaced by another model's.
        """
        if self._present:
            return
        with self._lock:
            folder, part, dtype, device = self._source
            fill(self._module, folder, part, dtype, device, lambda fraction: None, checkpoint)
            for parameter in self._module.parameters():
                parameter.requires_grad_(False)
            self._present = True


def _return_free_memory() -> None:
    """Have the C library give the system what is free in its heap: with glibc, gigabytes stay there otherwise."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform.startswith("linux") else None
    if trim is not None:
        trim(0)
