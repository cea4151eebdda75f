"""A module whose low-rank adapters are inputs: LoRAs and their strengths change without a change to the module."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

Adapter = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # strengths [r], down [r, in(, kh, kw)], up [out, r]


class AdaptedModule(torch.nn.Module):
    """A component's function with low-rank pairs on some layers: y + up @ (strengths * (down @ x)).

    `function` is one of `engine.models.components`: it holds one module and takes tensors only. `forward` takes its
    inputs, then the strengths [r], then down and up of each of `layers`, which are named as in that module. Any rank
    may be given that all pairs of a call share.

    The function itself is left as it is: this runs a twin of its modules, with the same parameters and buffers, also
    after these were released and read again. Hooks are those that the modules had when this was made.
    """

    def __init__(self, function: torch.nn.Module, layers: Sequence[str]) -> None:
        super().__init__()
        ((name, _),) = function.named_children()
        self.function = _twin(function, {})
        self._layers = [_adapt(self.function.get_submodule(f"{name}.{layer}"), layer) for layer in layers]
        self.eval()

    def forward(self, *tensors: torch.Tensor) -> torch.Tensor:
        adapters = 1 + 2 * len(self._layers)
        inputs, strengths, pairs = tensors[:-adapters], tensors[-adapters], tensors[1 - adapters :]
        for layer, down, up in zip(self._layers, pairs[::2], pairs[1::2], strict=True):
            layer.adapter = (strengths, down, up)
        try:
            answer: torch.Tensor = self.function(*inputs)
            return answer
        finally:
            for layer in self._layers:
                layer.adapter = None


def with_adapters(function: torch.nn.Module, layers: Sequence[str]) -> torch.nn.Module:
    """The function with low-rank pairs on these layers; the function itself where there are none."""
    return AdaptedModule(function, layers) if layers else function


class _AdaptedLinear(torch.nn.Linear):
    adapter: Adapter | None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if self.adapter is None:
            return y
        strengths, down, up = _as(x.dtype, self.adapter)
        return y + functional.linear(functional.linear(x, down) * strengths, up)


class _AdaptedConv2d(torch.nn.Conv2d):
    adapter: Adapter | None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if self.adapter is None:
            return y
        strengths, down, up = _as(x.dtype, self.adapter)
        inner = self._down(x, down)
        return y + torch.matmul(up, inner.flatten(2) * strengths[:, None]).reshape(y.shape)

    def _down(self, x: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        """The convolution with `down`, as a matrix product: plans take no convolution whose weights are of any rank.

        Every tap of the kernel is taken at every place; a convolution of ones and zeros, with this layer's stride and
        padding, then adds up what belongs together.
        """
        taps = self.kernel_size[0] * self.kernel_size[1]
        matrix = down.flatten(2).transpose(1, 2).reshape(-1, self.in_channels)  # [r * taps, in]
        tapped = torch.matmul(matrix, x.flatten(2))
        if taps == 1 and self.stride == (1, 1) and self.padding == (0, 0):
            return tapped
        apart = tapped.reshape(-1, taps, x.shape[2], x.shape[3])  # [B * r, taps, h, w]
        ones = torch.eye(taps, dtype=x.dtype, device=x.device).reshape(1, taps, *self.kernel_size)
        joined = functional.conv2d(apart, ones, None, self.stride, self.padding, self.dilation)
        return joined.reshape(x.shape[0], -1, joined.shape[2], joined.shape[3])


def _as(dtype: torch.dtype, adapter: Adapter) -> Adapter:
    if adapter[0].dtype == dtype:
        return adapter
    strengths, down, up = adapter
    return strengths.to(dtype), down.to(dtype), up.to(dtype)


def _adapt(layer: torch.nn.Module, name: str) -> Any:
    """Make a layer of the twin one that takes a pair."""
    kinds: dict[type, type[torch.nn.Module]] = {torch.nn.Linear: _AdaptedLinear, torch.nn.Conv2d: _AdaptedConv2d}
    if type(layer) not in kinds:
        raise ValueError(f"{name} is a {type(layer).__name__}, which takes no low-rank pair")
    layer.__class__ = kinds[type(layer)]
    layer.adapter = None  # type: ignore[assignment]
    return layer


def _twin(module: torch.nn.Module, made: dict[int, torch.nn.Module]) -> torch.nn.Module:
    """A copy of the tree of modules that shares parameters and buffers, but neither children nor hooks."""
    if id(module) not in made:
        twin = made[id(module)] = copy.copy(module)
        for name, value in vars(module).items():
            if name.endswith("hooks") and isinstance(value, dict):
                vars(twin)[name] = value.copy()
        vars(twin)["_modules"] = {
            name: child if child is None else _twin(child, made) for name, child in module._modules.items()
        }
    return made[id(module)]
