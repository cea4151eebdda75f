"""Weights that stay in memory as f16, as most files hold them, and are widened layer by layer while a module runs.

Where the file holds f16 nothing is copied: the weights are pages of the file, which the system may take back at any
time, and the layers compute in f32 with the same numbers as if they had been widened on loading.
"""

from __future__ import annotations

from typing import Any

import torch

# Smaller weights, norms, biases and embeddings are kept in f32: they are few.
_LEAST_ELEMENTS = 2**14
_LAYERS = (torch.nn.Linear, torch.nn.Conv2d)


class _Widening:
    """The hooks of one layer: its weight is f32 from just before its forward to just after, however that ends."""

    def __init__(self) -> None:
        self._stored: torch.Tensor | None = None

    def widen(self, layer: torch.nn.Module, inputs: Any) -> None:
        del inputs
        stored = layer._parameters["weight"]
        if stored is None or stored.dtype != torch.float16:
            return
        wide = stored.float()
        if stored.dim() == 4 and not torch.jit.is_tracing():  # type: ignore[attr-defined]
            wide = wide.contiguous(memory_format=torch.channels_last)
        self._stored = stored
        layer._parameters["weight"] = wide  # type: ignore[assignment]  # a plain tensor serves as well, and can be traced

    def narrow(self, layer: torch.nn.Module, inputs: Any, output: Any) -> None:
        del inputs, output
        if self._stored is not None:
            layer._parameters["weight"] = self._stored  # type: ignore[assignment]
            self._stored = None


def keep_narrow(module: torch.nn.Module) -> None:
    """Have the large weights of `module`'s linear layers and convolutions stay f16, once they are filled in."""
    for layer in module.modules():
        if type(layer) in _LAYERS and layer._parameters["weight"].numel() >= _LEAST_ELEMENTS:  # type: ignore[union-attr]
            widening = _Widening()
            layer.register_forward_pre_hook(widening.widen)
            layer.register_forward_hook(widening.narrow, always_call=True)
            layer.is_narrow = True  # type: ignore[assignment]


def stays_narrow(layer: torch.nn.Module, name: str, tensor: torch.Tensor) -> bool:
    """Whether this weight, as the file has it, is to be kept in f16: not where numbers would become infinite."""
    if name != "weight" or not getattr(layer, "is_narrow", False):
        return False
    return tensor.dtype == torch.float16 or bool(tensor.half().isfinite().all())
