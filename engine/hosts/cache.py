"""The plans of one structure version: those that are there, those being built, and signatures that can have none."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from engine.cancellation import CancellationToken
from engine.hosts.lease import Lease
from engine.hosts.plan_in_build import PlanInBuild
from engine.plans.plan import Plan, Signature


@dataclass
class PlanCache:
    """What a host keeps for one structure version. Its methods are called with the host's lock held.

    Leases that a method returns are for the caller to give up once it no longer holds the lock, as closing a plan can
    take long and can call back. `capacity` bounds the number of plans; None keeps all.
    """

    version: int
    capacity: int | None = None
    leases: OrderedDict[Signature, Lease] = field(default_factory=OrderedDict)
    builds: dict[Signature, PlanInBuild] = field(default_factory=dict)
    eager_only: set[Signature] = field(default_factory=set)

    def find(self, signature: Signature) -> Lease | None:
        """The lease of a plan that can run; it counts as used now."""
        lease = self.leases.get(signature)
        if lease is None or not lease.plan.is_alive:
            return None
        self.leases.move_to_end(signature)
        return lease

    def add(self, signature: Signature, plan: Plan) -> list[Lease]:
        """Take a plan in. Returns the dead one of this signature, if there was one."""
        replaced = [self.leases.pop(signature)] if signature in self.leases else []
        self.leases[signature] = Lease(plan)
        return replaced

    def trim(self, in_use: Lease | None) -> list[Lease]:
        """Forget the plans unused for longest until the capacity holds, but neither the newest nor `in_use`: a picture
        may be in the middle of it.
        """
        if self.capacity is None:
            return []
        idle = [signature for signature, lease in list(self.leases.items())[:-1] if lease is not in_use]
        return [self.leases.pop(signature) for signature in idle[: max(0, len(self.leases) - self.capacity)]]

    def drop(self, lease: Lease) -> None:
        """Forget a plan that broke; its signature stays eager."""
        for signature, held in self.leases.items():
            if held is lease:
                del self.leases[signature]
                self.eager_only.add(signature)
                return

    def empty(self) -> tuple[list[Lease], list[CancellationToken]]:
        """Forget every plan. Returns their leases and the tokens of the builds that nobody needs any more."""
        leases = list(self.leases.values())
        tokens: list[CancellationToken] = [build.token for build in self.builds.values()]
        self.leases.clear()
        return leases, tokens
