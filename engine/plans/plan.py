"""What a plan is: one module, ready to run for one signature."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from engine.cancellation import CancellationToken

if TYPE_CHECKING:
    import torch

EAGER = "eager"
OPENVINO_STATIC = "openvino-static"
OPENVINO_DYNAMIC = "openvino-dynamic"
INDUCTOR = "inductor"
OPEN = -1  # a size that a plan leaves open


@dataclass(frozen=True)
class Signature:
    """Shape and dtype of every input, in order: what a plan is compiled for. `OPEN` stands for any size."""

    inputs: tuple[tuple[tuple[int, ...], str], ...]

    @classmethod
    def of(cls, inputs: Sequence[torch.Tensor]) -> Signature:
        return cls(tuple((tuple(x.shape), str(x.dtype).removeprefix("torch.")) for x in inputs))

    @property
    def opened(self) -> Signature:
        """The signature of a plan that serves these inputs in every size."""
        return Signature(tuple(((OPEN,) * len(shape), dtype) for shape, dtype in self.inputs))

    @property
    def is_open(self) -> bool:
        return any(OPEN in shape for shape, _ in self.inputs)


class Plan(Protocol):
    """One module ready to run. `execute` and `execute_async` agree bit for bit.

    Both raise `OperationCancelled` when the token is cancelled before or while they run, and return only when
    nothing of the call runs any more. `PlanFailed` says that the plan can't be used again.
    """

    kind: str

    @property
    def is_alive(self) -> bool:
        """False once the plan can't answer any more: it is closed, or its process is gone."""
        ...

    def execute(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor: ...

    async def execute_async(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor: ...

    def close(self) -> None: ...
