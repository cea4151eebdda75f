"""What the call before ran, so that the next one of the same kind needs no looking up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from engine.hosts.lease import Lease

if TYPE_CHECKING:
    import torch


class LastCall(NamedTuple):
    """The version, sizes and types of a call and the plan that answered it. Immutable: it is read without a lock.

    `sizes` holds a shape or, with `open_sizes`, a number of dimensions for each input.
    """

    version: int
    sizes: tuple[tuple[tuple[int, ...] | int, torch.dtype], ...]
    open_sizes: bool
    lease: Lease

    @classmethod
    def of(cls, inputs: Sequence[torch.Tensor], version: int, open_sizes: bool, lease: Lease) -> LastCall:
        sizes = tuple((x.ndim if open_sizes else tuple(x.shape), x.dtype) for x in inputs)
        return cls(version, sizes, open_sizes, lease)

    def fits(self, inputs: Sequence[torch.Tensor], version: int) -> bool:
        """Whether the same plan answers these inputs. Compares in place, as it runs at every step."""
        if self.version != version or len(self.sizes) != len(inputs):
            return False
        for (size, dtype), tensor in zip(self.sizes, inputs, strict=True):
            if tensor.dtype is not dtype or (tensor.ndim if self.open_sizes else tensor.shape) != size:
                return False
        return True
