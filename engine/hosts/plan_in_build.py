"""A plan that is being built: who waits for it, who can stop it, and what it came to."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled
from engine.plans.plan import Plan

# Of a build's errors, those that say nothing about the signature.
FATAL = (OperationCancelled, HostClosed, MemoryError, KeyboardInterrupt, SystemExit)


class PlanInBuild:
    """`promise` is settled after the host has taken the plan in, so who waited for it finds the plan ready.

    `token` stops the build: it is cancelled with that of who asked, or by the host once nobody needs the plan.
    """

    def __init__(self, asker: CancellationToken) -> None:
        self.token = asker.linked()
        self.promise: Future[Plan] = Future()
        self.promise.set_running_or_notify_cancel()  # one who waits can't cancel it for the others

    def settle(self, plan: Plan | None, error: BaseException | None) -> None:
        """Tell who waits: the error where there is one, else the plan."""
        self.token.close()
        if error is not None:
            self.promise.set_exception(error)
        elif plan is not None:
            self.promise.set_result(plan)


def outcome(built: Future[Plan] | BaseException) -> tuple[Plan | None, BaseException | None]:
    """A build's plan or its error."""
    if isinstance(built, BaseException):
        return None, built
    try:
        error = built.exception()
    except CancelledError:
        return None, OperationCancelled("The build was cancelled.")
    return (built.result(), None) if error is None else (None, error)
