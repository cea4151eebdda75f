"""The host of one module: decides, call by call, whether a compiled plan or the eager module answers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.plans.plan import Plan, Signature

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

Build = Callable[[Signature, CancellationToken], "Future[Plan]"]


@dataclass
class Counters:
    """What a host did; tests assert on them."""

    fast_hits: int = 0
    slow_calls: int = 0
    plans_built: int = 0
    poisoned: int = 0
    eager_answers: int = 0


@dataclass
class _Cache:
    """The plans of one structure version. Closed when it has been replaced and the last running call has left it; a
    poisoned plan is closed when no call runs that may still be using it.
    """

    version: int
    plans: dict[Signature, Plan] = field(default_factory=dict)
    builds: dict[Signature, Future[Plan]] = field(default_factory=dict)
    eager_only: set[Signature] = field(default_factory=set)
    poisoned: list[Plan] = field(default_factory=list)
    running: int = 0
    retired: bool = False

    def close(self) -> None:
        self.close_poisoned()
        for plan in self.plans.values():
            plan.close()
        self.plans.clear()

    def close_poisoned(self) -> None:
        for plan in self.poisoned:
            plan.close()
        self.poisoned.clear()


class CompiledModelHost:
    """Owns the plans of one module. A component of its owner, which hands in its structure version at each call.

    `build` asks for a plan and returns its future; None makes a host that always answers eagerly. All methods may be
    called from any thread. After `close` every call raises `HostClosed`; calls that run finish first.
    """

    def __init__(self, name: str, build: Build | None = None, on_ready: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.counters = Counters()
        self._build = build
        self._on_ready = on_ready
        self._lock = threading.Lock()
        self._cache = _Cache(version=-1)
        self._fast: tuple[Signature, int, Plan] | None = None
        self._closed = False

    def ready(self, signature: Signature, version: int) -> bool:
        """Whether a plan for this signature and version can run now. Never blocks."""
        with self._lock:
            plan = self._enter(version).plans.get(signature)
            return plan is not None and plan.is_alive

    def prepare(
        self, signature: Signature, version: int, token: CancellationToken = CancellationToken.none
    ) -> Future[Plan]:
        """The plan for this signature: there already, being built, or asked for now. Raises `PlanFailed` at once for a
        signature that can't have one. The token cancels a build that this call starts.
        """
        with self._lock:
            cache = self._enter(version)
            plan = cache.plans.get(signature)
            if plan is not None and plan.is_alive:
                done: Future[Plan] = Future()
                done.set_result(plan)
                return done
            if (running := cache.builds.get(signature)) is not None:
                return running
            if self._build is None or signature in cache.eager_only:
                raise PlanFailed(f"The {self.name} has no compiled plan for this size; it can run eagerly.")
            future = self._build(signature, token)
            cache.builds[signature] = future
        future.add_done_callback(lambda built: self._keep(cache, signature, built))
        return future

    def _keep(self, cache: _Cache, signature: Signature, built: Future[Plan]) -> None:
        error = built.exception()
        with self._lock:
            cache.builds.pop(signature, None)
            if error is None:
                if cache.retired:
                    built.result().close()
                    return
                cache.plans[signature] = built.result()
                self.counters.plans_built += 1
            elif not isinstance(error, OperationCancelled):
                cache.eager_only.add(signature)
                log.warning("the %s stays eager for %s: %s", self.name, signature.inputs, error)
        self._on_ready()

    def predict(
        self,
        inputs: Sequence[torch.Tensor],
        version: int,
        eager: Plan,
        token: CancellationToken = CancellationToken.none,
        compiled: bool = True,
    ) -> torch.Tensor:
        """Answer with a ready plan, else with `eager`. `compiled=False` asks for the eager answer."""
        signature, cache, plan = self._choose(inputs, version, compiled)
        try:
            return plan.execute(inputs, token) if plan is not None else self._eagerly(eager).execute(inputs, token)
        except PlanFailed as error:
            if plan is None:
                raise
            self._poison(cache, signature, plan, error)
            return self._eagerly(eager).execute(inputs, token)
        finally:
            self._leave(cache)

    async def predict_async(
        self,
        inputs: Sequence[torch.Tensor],
        version: int,
        eager: Plan,
        token: CancellationToken = CancellationToken.none,
        compiled: bool = True,
    ) -> torch.Tensor:
        """`predict` without blocking the loop, bit for bit the same."""
        signature, cache, plan = self._choose(inputs, version, compiled)
        try:
            if plan is not None:
                return await plan.execute_async(inputs, token)
            return await self._eagerly(eager).execute_async(inputs, token)
        except PlanFailed as error:
            if plan is None:
                raise
            self._poison(cache, signature, plan, error)
            return await self._eagerly(eager).execute_async(inputs, token)
        finally:
            self._leave(cache)

    def _choose(
        self, inputs: Sequence[torch.Tensor], version: int, compiled: bool
    ) -> tuple[Signature, _Cache, Plan | None]:
        signature = Signature.of(inputs)
        with self._lock:
            cache = self._enter(version)
            cache.running += 1
            if not compiled:
                return signature, cache, None
            if self._fast is not None and self._fast[:2] == (signature, version) and self._fast[2].is_alive:
                self.counters.fast_hits += 1
                return signature, cache, self._fast[2]
            self.counters.slow_calls += 1
            plan = cache.plans.get(signature)
            if plan is not None and plan.is_alive:
                self._fast = (signature, version, plan)
                return signature, cache, plan
        return signature, cache, None

    def _enter(self, version: int) -> _Cache:
        """The cache of this version; a new version retires the old cache. Called with the lock held."""
        if self._closed:
            raise HostClosed(f"The host of the {self.name} is closed.")
        if self._cache.version != version:
            self._retire()
            self._cache = _Cache(version)
        return self._cache

    def _retire(self) -> None:
        self._fast = None
        self._cache.retired = True
        if self._cache.running == 0:
            self._cache.close()

    def _leave(self, cache: _Cache) -> None:
        with self._lock:
            cache.running -= 1
            if cache.running == 0:
                cache.close_poisoned()
                if cache.retired:
                    cache.close()

    def _eagerly(self, eager: Plan) -> Plan:
        with self._lock:
            self.counters.eager_answers += 1
        return eager

    def _poison(self, cache: _Cache, signature: Signature, plan: Plan, error: PlanFailed) -> None:
        with self._lock:
            if cache.plans.get(signature) is not plan:
                return  # another call found out first
            self.counters.poisoned += 1
            self._fast = None
            cache.eager_only.add(signature)
            cache.poisoned.append(cache.plans.pop(signature))
        log.warning("a plan of the %s broke while running and is dropped: %s", self.name, error)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._retire()
