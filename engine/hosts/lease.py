"""A plan and the calls inside it: the plan is closed once, when it is given up and the last call has left it."""

from __future__ import annotations

import logging
from collections import deque

from engine.plans.plan import Plan

log = logging.getLogger(__name__)


class Lease:
    """Lets calls into a plan until it is given up. Safe from any thread, and without a lock.

    Nothing here is locked because each of the few steps is one operation that the interpreter can't tear apart, and
    their order decides: a call counts itself in before it looks whether the plan is given up, and who gives the plan up
    says so before counting the calls. One of the two always sees the other.
    """

    __slots__ = ("__weakref__", "_close_right", "_given_up", "_inside", "broken", "plan")

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.broken = False  # its host's mark, so that several calls that break report one plan
        self._inside: deque[None] = deque()
        self._given_up = False
        self._close_right = [None]  # whoever takes the one element out closes the plan

    def enter(self) -> bool:
        """Count a call in; it calls `leave` afterwards. False, and no call counted, once the plan is given up."""
        self._inside.append(None)
        if self._given_up:
            self.leave()
            return False
        return True

    def leave(self) -> None:
        """Count a call out; the last one out of a plan that is given up closes it."""
        self._inside.pop()
        if self._given_up and not self._inside:
            self._close_once()

    def give_up(self) -> None:
        """Let no more calls in; close the plan now or, where calls are inside, when the last one leaves."""
        self._given_up = True
        if not self._inside:
            self._close_once()

    def _close_once(self) -> None:
        try:
            self._close_right.pop()
        except IndexError:
            return
        try:
            self.plan.close()
        except Exception:  # whoever happens to leave last has nothing to do with it
            log.exception("a plan could not be closed")
