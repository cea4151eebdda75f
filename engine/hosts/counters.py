"""What a host did, counted exactly and without a lock."""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """What a host did until now; tests assert on them.

    Every call is a fast hit (the plan of the call before) or a slow call (looked up, answered eagerly for want of a
    plan); one that asks for the eager answer is neither. `plans_built` came, of which `loaded_from_disk` were made from
    what the plan store held; `poisoned` broke while running; `eager_answers` counts the calls answered eagerly.
    """

    fast_hits: int = 0
    slow_calls: int = 0
    plans_built: int = 0
    loaded_from_disk: int = 0
    poisoned: int = 0
    eager_answers: int = 0


class Tally:
    """A number that any thread adds one to without a lock: `next` of an `itertools.count` can't be torn apart."""

    __slots__ = ("_count", "_reading", "_reads", "add")

    def __init__(self) -> None:
        self._count = itertools.count()
        self.add = self._count.__next__
        self._reading = threading.Lock()
        self._reads = 0

    @property
    def value(self) -> int:
        with self._reading:  # reading, too, takes a number from the count
            value = next(self._count) - self._reads
            self._reads += 1
        return value
