"""The host of one module: decides, call by call, whether a compiled plan or the eager module answers."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.hosts.cache import PlanCache
from engine.hosts.counters import Counters, Tally
from engine.hosts.last_call import LastCall
from engine.hosts.lease import Lease
from engine.hosts.plan_in_build import FATAL, PlanInBuild, outcome
from engine.plans.plan import Plan, Signature

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

Build = Callable[[Signature, CancellationToken], "Future[Plan]"]


class CompiledModelHost:
    """Owns the plans of one module. A component of its owner, which hands in its structure version at each call.

    All methods may be called from any thread. After `close` every call raises `HostClosed`; calls that run finish
    first.
    """

    def __init__(
        self,
        name: str,
        build: Build | None = None,
        on_ready: Callable[[], None] = lambda: None,
        open_sizes: bool = False,
        capacity: int | None = None,
        build_on_demand: bool = False,
    ) -> None:
        """`build` asks for a plan and returns its future; None makes a host that always answers eagerly. `on_ready` is
        called after each build, without the host's lock.

        `open_sizes` says that a plan serves every size of its inputs. `capacity` is how many plans stay; those unused
        for longest go first. With `build_on_demand` a call without a plan asks for one; otherwise only `prepare` does.
        """
        self.name = name
        self._build = build
        self._on_ready = on_ready
        self._open_sizes = open_sizes
        self._capacity = capacity
        self._build_on_demand = build_on_demand
        self._tallies = {counter: Tally() for counter in Counters.__dataclass_fields__}
        self._count_fast_hit = self._tallies["fast_hits"].add
        self._lock = threading.Lock()
        self._cache = PlanCache(version=-1)
        self._last: LastCall | None = None
        self._closed = False

    @property
    def counters(self) -> Counters:
        return Counters(**{counter: tally.value for counter, tally in self._tallies.items()})

    def ready(self, signature: Signature, version: int) -> bool:
        """Whether a plan for this signature and version can run now. Never blocks."""
        with self._at(version) as cache:
            return cache.find(self._key(signature)) is not None

    def knows(self, signature: Signature, version: int) -> bool:
        """Whether there is a plan for this signature and version, be it one that has died meanwhile."""
        with self._at(version) as cache:
            return self._key(signature) in cache.leases

    def prepare(
        self, signature: Signature, version: int, token: CancellationToken = CancellationToken.none
    ) -> Future[Plan]:
        """The plan for this signature: there already, being built, or asked for now. Raises `PlanFailed` at once for a
        signature that can't have one. The token cancels a build that this call starts; so does a change of version.
        """
        key = self._key(signature)
        with self._at(version) as cache:
            lease = cache.find(key)
            if lease is not None:
                done: Future[Plan] = Future()
                done.set_result(lease.plan)
                return done
            if (running := cache.builds.get(key)) is not None:
                return running.promise
            if self._build is None or key in cache.eager_only:
                raise PlanFailed(f"The {self.name} has no compiled plan for this size; it can run eagerly.")
            started = cache.builds[key] = PlanInBuild(token)
        try:
            future = self._build(key, started.token)
        except BaseException as error:
            self._settle(cache, key, started, error)
            raise
        future.add_done_callback(lambda built: self._settle(cache, key, started, built))
        return started.promise

    def take_version(self, version: int) -> None:
        """Give up what belongs to another version now; any other call with the new version would do it then."""
        with self._at(version):
            return

    def predict(
        self,
        inputs: Sequence[torch.Tensor],
        version: int,
        eager: Plan,
        token: CancellationToken = CancellationToken.none,
        compiled: bool = True,
    ) -> torch.Tensor:
        """Answer with a ready plan, else with `eager`. `compiled=False` asks for the eager answer."""
        lease = self._enter(inputs, version, compiled)
        if lease is not None:
            try:
                return lease.plan.execute(inputs, token)
            except PlanFailed as error:
                self._poison(lease, str(error))
            finally:
                lease.leave()
            lease = None  # what broke needn't stay in memory while the eager module runs
        self._tallies["eager_answers"].add()
        return eager.execute(inputs, token)

    async def predict_async(
        self,
        inputs: Sequence[torch.Tensor],
        version: int,
        eager: Plan,
        token: CancellationToken = CancellationToken.none,
        compiled: bool = True,
    ) -> torch.Tensor:
        """`predict` without blocking the loop, bit for bit the same."""
        lease = self._enter(inputs, version, compiled)
        if lease is not None:
            try:
                return await lease.plan.execute_async(inputs, token)
            except PlanFailed as error:
                self._poison(lease, str(error))
            finally:
                lease.leave()
            lease = None
        self._tallies["eager_answers"].add()
        return await eager.execute_async(inputs, token)

    def close(self) -> None:
        """Give up every plan and stop every build. Calls that run finish; their plans are closed after them."""
        with self._lock:
            self._closed = True
            self._last = None
            leases, tokens = self._cache.empty()
        _give_up(leases, tokens, f"The host of the {self.name} is closed.")

    # Finding the plan of a call

    def _enter(self, inputs: Sequence[torch.Tensor], version: int, compiled: bool) -> Lease | None:
        """A lease that this call has entered, or None where the eager module answers."""
        last = self._last
        if compiled and last is not None and last.fits(inputs, version) and last.lease.enter():
            if last.lease.plan.is_alive:
                self._count_fast_hit()
                return last.lease
            last.lease.leave()
        return self._look_up(inputs, version, compiled)

    def _look_up(self, inputs: Sequence[torch.Tensor], version: int, compiled: bool) -> Lease | None:
        signature = Signature.of(inputs)
        leaving: list[Lease] = []
        with self._at(version) as cache:
            if not compiled:
                return None
            self._tallies["slow_calls"].add()
            lease = cache.find(self._key(signature))
            if lease is not None:
                lease.enter()  # lets in: what the cache holds isn't given up
                self._last = LastCall.of(inputs, version, self._open_sizes, lease)
                leaving = cache.trim(lease)
        _give_up(leaving)
        if lease is not None:
            return lease
        if self._build_on_demand:
            with contextlib.suppress(PlanFailed):  # this signature stays eager
                self.prepare(signature, version)
        return None

    def _key(self, signature: Signature) -> Signature:
        return signature.opened if self._open_sizes else signature

    @contextlib.contextmanager
    def _at(self, version: int) -> Iterator[PlanCache]:
        """The cache of this version, with the lock held. A new version's cache takes the place of the old one, whose
        plans are given up once the lock is free.
        """
        leases: list[Lease] = []
        tokens: list[CancellationToken] = []
        try:
            with self._lock:
                if self._closed:
                    raise HostClosed(f"The host of the {self.name} is closed.")
                if self._cache.version != version:
                    self._last = None
                    leases, tokens = self._cache.empty()
                    self._cache = PlanCache(version, self._capacity)
                yield self._cache
        finally:
            _give_up(leases, tokens, f"The {self.name} has changed meanwhile.")

    # What becomes of builds and of plans that break

    def _settle(
        self, cache: PlanCache, key: Signature, started: PlanInBuild, built: Future[Plan] | BaseException
    ) -> None:
        """Take in what a build came to, then tell who waits for it."""
        plan, error = outcome(built)
        leaving: list[Lease] = []
        with self._lock:
            cache.builds.pop(key, None)
            if self._closed:
                error = HostClosed(f"The host of the {self.name} is closed.")
            elif cache is not self._cache:
                error = OperationCancelled(f"The {self.name} has changed meanwhile.")
            elif plan is not None:
                leaving = cache.add(key, plan) + cache.trim(None if self._last is None else self._last.lease)
                self._tallies["plans_built"].add()
                if getattr(plan, "from_store", False):
                    self._tallies["loaded_from_disk"].add()
            elif not isinstance(error, FATAL):
                cache.eager_only.add(key)
                log.warning("the %s stays eager for %s: %s", self.name, key.inputs, str(error))
        if plan is not None and error is not None:
            leaving.append(Lease(plan))
        _give_up(leaving)
        started.settle(plan, error)
        self._on_ready()

    def _poison(self, lease: Lease, why: str) -> None:
        with self._lock:
            if lease.broken:
                return  # another call found out first
            lease.broken = True
            self._tallies["poisoned"].add()
            self._cache.drop(lease)
            if self._last is not None and self._last.lease is lease:
                self._last = None
        lease.give_up()
        log.warning("a plan of the %s broke while running and is dropped: %s", self.name, why)


def _give_up(leases: Sequence[Lease], tokens: Sequence[CancellationToken] = (), reason: str | None = None) -> None:
    for lease in leases:
        lease.give_up()
    for token in tokens:
        token.cancel(reason)
