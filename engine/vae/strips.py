"""Keeps the operators of an eager decode short, so that it can be cancelled inside a layer.

At high resolution one convolution of the VAE runs for seconds. Here large convolutions run by strips of rows, with the
rows that their kernel reaches beyond the strip, and large attention by blocks of queries; between two strips the
checkpoint is asked. Every output value is computed from the same inputs as before.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional

# Multiply-adds of one strip: about 20 ms at 50 GFLOP/s, well below what a cancel may take.
STRIP_WORK = 1_000_000_000


def run_by_strips(vae: torch.nn.Module, checkpoint: Callable[[], None]) -> None:
    """Make the convolutions and the attention of `vae` run by strips where they are large. Weights are untouched."""
    part: Any
    for part in vae.modules():
        if isinstance(part, torch.nn.Conv2d) and part.padding_mode == "zeros" and part.groups == 1:
            setattr(part, "forward", _StripConvolution(part, checkpoint))  # noqa: B010
        elif hasattr(part, "set_processor") and hasattr(part, "to_q"):
            part.set_processor(_BlockAttention(checkpoint))


class _StripConvolution:
    def __init__(self, convolution: torch.nn.Conv2d, checkpoint: Callable[[], None]) -> None:
        # The convolution holds this object: a second strong reference would make a cycle, and a model that is given
        # up would stay in memory until the garbage collector comes by, for ever where it has been frozen.
        self._convolution = weakref.proxy(convolution)
        self._checkpoint = checkpoint

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        c = self._convolution
        kernel, stride, dilation = c.kernel_size[0], c.stride[0], c.dilation[0]
        padding = c.padding if isinstance(c.padding, tuple) else (0, 0)
        height = (x.shape[2] + 2 * padding[0] - dilation * (kernel - 1) - 1) // stride + 1
        width = (x.shape[3] + 2 * padding[1] - c.dilation[1] * (c.kernel_size[1] - 1) - 1) // c.stride[1] + 1
        row_work = x.shape[0] * width * c.out_channels * c.in_channels * kernel * c.kernel_size[1]
        rows = max(8, STRIP_WORK // max(1, row_work))
        if isinstance(c.padding, str) or height <= rows:
            return c._conv_forward(x, c.weight, c.bias)
        layout = torch.channels_last if x.is_contiguous(memory_format=torch.channels_last) else torch.contiguous_format
        shape = (x.shape[0], c.out_channels, height, width)
        out = torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=layout)
        for top in range(0, height, rows):
            self._checkpoint()
            bottom = min(top + rows, height)
            first = top * stride - padding[0]
            last = (bottom - 1) * stride - padding[0] + dilation * (kernel - 1) + 1
            strip = x[:, :, max(first, 0) : min(last, x.shape[2])]
            above = max(-first, 0)
            below = last - first - above - strip.shape[2]
            if above or below:
                strip = functional.pad(strip, (0, 0, above, below))
            out[:, :, top:bottom] = functional.conv2d(
                strip, c.weight, c.bias, c.stride, (0, padding[1]), c.dilation, c.groups
            )
        return out


class _BlockAttention:
    """Self-attention of the VAE's mid block, [B, C, h, w] to the same, softmax over all keys for a block of queries."""

    def __init__(self, checkpoint: Callable[[], None]) -> None:
        self._checkpoint = checkpoint

    def __call__(
        self, attn: Any, hidden_states: torch.Tensor, *unused: Any, temb: torch.Tensor | None = None, **options: Any
    ) -> torch.Tensor:
        del unused, options, temb
        residual = hidden_states
        batch, channels, height, width = hidden_states.shape
        x = hidden_states.view(batch, channels, height * width).transpose(1, 2)
        if attn.group_norm is not None:
            x = attn.group_norm(x.transpose(1, 2)).transpose(1, 2)

        def heads(projection: torch.nn.Module) -> torch.Tensor:
            return projection(x).view(batch, -1, attn.heads, channels // attn.heads).transpose(1, 2)

        queries, keys, values = heads(attn.to_q), heads(attn.to_k), heads(attn.to_v)
        block = max(64, STRIP_WORK // max(1, 2 * batch * keys.shape[2] * channels))
        parts = []
        for start in range(0, queries.shape[2], block):
            self._checkpoint()
            parts.append(functional.scaled_dot_product_attention(queries[:, :, start : start + block], keys, values))
        x = torch.cat(parts, dim=2).transpose(1, 2).reshape(batch, -1, channels)
        x = attn.to_out[1](attn.to_out[0](x)).transpose(-1, -2).reshape(batch, channels, height, width)
        if attn.residual_connection:
            x = x + residual
        return x / attn.rescale_output_factor
