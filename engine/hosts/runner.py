"""One module with its host, its structure version and its eager plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from engine.cancellation import CancellationToken
from engine.hosts.host import CompiledModelHost
from engine.plans.eager import EagerPlan, EagerStream
from engine.plans.plan import Plan, Signature

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch


class Runner:
    """What a model holds of each of its modules. Its owner raises `version` when the module's plans became wrong."""

    def __init__(self, host: CompiledModelHost, function: Callable[..., torch.Tensor], stream: EagerStream) -> None:
        self.host = host
        self.version = 0
        self._eager = EagerPlan(function, stream)

    @property
    def name(self) -> str:
        return self.host.name

    async def run(
        self, inputs: Sequence[torch.Tensor], compiled: bool, token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        """Run the module: with its plan where `compiled` and one is ready, else eagerly."""
        return await self.host.predict_async(inputs, self.version, self._eager, token, compiled)

    def ready(self, signature: Signature) -> bool:
        return self.host.ready(signature, self.version)

    def prepare(self, signature: Signature, token: CancellationToken = CancellationToken.none) -> Future[Plan]:
        return self.host.prepare(signature, self.version, token)

    def close(self) -> None:
        self.host.close()
        self._eager.close()
