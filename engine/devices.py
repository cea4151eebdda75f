"""Where eager modules run, and in which precision.

CUDA, MPS and XPU paths have not yet been run on hardware.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Device:
    """A torch device by its name, the name that people know it by, and the precision that models are loaded in."""

    torch_name: str
    label: str
    dtype: torch.dtype


def best_device() -> Device:
    """The fastest device that torch finds: CUDA, then XPU, then MPS in f16, else the CPU in f32."""
    import torch

    if torch.cuda.is_available():
        return Device("cuda", torch.cuda.get_device_name(), torch.float16)
    if torch.xpu.is_available():
        return Device("xpu", torch.xpu.get_device_name(), torch.float16)
    if torch.backends.mps.is_available():
        return Device("mps", "Apple GPU", torch.float16)
    return Device("cpu", "CPU", torch.float32)
