"""One module with its hosts, its structure version and its eager plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from engine.cancellation import CancellationToken
from engine.hosts.host import CompiledModelHost
from engine.plans.eager import EagerPlan, EagerStream
from engine.plans.plan import EAGER, Plan, Signature

if TYPE_CHECKING:
    from concurrent.futures import Future

    import torch


class Runner:
    """What a model holds of each of its modules. Its owner raises `version` when the module's plans became wrong, or
    calls `renew` to be rid of them at once.

    `hosts` has a host for each kind of plan that the module can have, and one that always answers eagerly; kinds whose
    plans are the same share one.
    """

    def __init__(
        self,
        name: str,
        hosts: Mapping[str, CompiledModelHost],
        function: Callable[..., torch.Tensor],
        stream: EagerStream,
    ) -> None:
        self.name = name
        self.version = 0
        self.hosts = {EAGER: CompiledModelHost(name), **hosts}
        self.eager = EagerPlan(function, stream)

    async def run(
        self, inputs: Sequence[torch.Tensor], kind: str, token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        """Run the module with a plan of this kind where one is ready, else eagerly."""
        return await self.host(kind).predict_async(inputs, self.version, self.eager, token)

    def host(self, kind: str) -> CompiledModelHost:
        """The host of this kind of plan; the eager one where the module can't have such plans."""
        return self.hosts.get(kind, self.hosts[EAGER])

    def ready(self, signature: Signature, kind: str) -> bool:
        """Whether a plan of this kind can run now."""
        host = self.hosts.get(kind)
        return host is not None and host.ready(signature, self.version)

    def knows(self, signature: Signature, kind: str) -> bool:
        """Whether there is a plan of this kind, be it one that has died meanwhile."""
        host = self.hosts.get(kind)
        return host is not None and host.knows(signature, self.version)

    def prepare(
        self, signature: Signature, kind: str, token: CancellationToken = CancellationToken.none
    ) -> Future[Plan]:
        """Ask for a plan, as `CompiledModelHost.prepare` does."""
        return self.hosts[kind].prepare(signature, self.version, token)

    def renew(self) -> None:
        """Raise the version and give up every plan and build now."""
        self.version += 1
        for host in set(self.hosts.values()):
            host.take_version(self.version)

    @property
    def poisoned(self) -> int:
        """How many plans broke while running."""
        return sum(host.counters.poisoned for host in set(self.hosts.values()))

    @property
    def has_plans(self) -> bool:
        return any(host.counters.plans_built + host.counters.loaded_from_disk for host in self.hosts.values())

    def close(self) -> None:
        for host in self.hosts.values():
            host.close()
        self.eager.close()
