"""Compiles a module of its own accord when its training is over. Off unless asked for."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from engine.cancellation import CancellationToken
from engine.errors import PlanFailed
from engine.hosts.host import CompiledModelHost
from engine.hosts.plan_in_build import FATAL
from engine.plans.plan import Plan, Signature

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)


class TrainingWitness:
    """A forward hook that remembers whether its module has run in training mode.

    It refers to nothing, so a copy of the module (an average of weights, say) is witnessed by a copy, and a module that
    bears the hook can be pickled.
    """

    def __init__(self) -> None:
        self.has_trained = False

    def __call__(self, module: torch.nn.Module, inputs: object) -> None:  # noqa: ARG002
        if module.training:
            self.has_trained = True


class AutoCompile:
    """Predicts by a host and, if asked for, has it build the module's plan once the module's training has ended.

    What arms it is a change from training to eval: the module was in training mode when this object was made or at a
    `predict`, or ran in it since, and is in eval mode now. A module that was never trained, or is told `eval()` again,
    arms nothing. The next `predict` after the change starts the build, once and for good, and is answered eagerly like
    every call until the plan is there. While the module is in training mode no plan answers for it. That its weights
    have changed, its owner says by the structure version.

    An error of the build that eager answers get around leaves the module eager; a fatal one (cancelled, out of memory,
    interrupted) is raised, at once or by the first `predict` after it. May be called from any thread.
    """

    def __init__(self, host: CompiledModelHost, module: torch.nn.Module, enabled: bool = False) -> None:
        self.host = host
        self._module = module
        self._witness: TrainingWitness | None = None
        self._build: tuple[int, Future[Plan]] | None = None  # of which version
        if enabled:
            self._witness = TrainingWitness()
            self._witness.has_trained = module.training
            self._hook = module.register_forward_pre_hook(self._witness)

    @property
    def is_armed(self) -> bool:
        """Whether the next `predict` starts a build."""
        witness = self._witness
        return witness is not None and witness.has_trained and not self._module.training

    def predict(
        self,
        inputs: Sequence[torch.Tensor],
        version: int,
        eager: Plan,
        token: CancellationToken = CancellationToken.none,
    ) -> torch.Tensor:
        """`CompiledModelHost.predict`."""
        compiled = self._look(inputs, version, token)
        return self.host.predict(inputs, version, eager, token, compiled)

    async def predict_async(
        self,
        inputs: Sequence[torch.Tensor],
        version: int,
        eager: Plan,
        token: CancellationToken = CancellationToken.none,
    ) -> torch.Tensor:
        """`CompiledModelHost.predict_async`."""
        compiled = self._look(inputs, version, token)
        return await self.host.predict_async(inputs, version, eager, token, compiled)

    def _look(self, inputs: Sequence[torch.Tensor], version: int, token: CancellationToken) -> bool:
        """See what has become of the module and of its build. Returns whether plans may answer."""
        token.raise_if_cancelled()
        self._raise_fatal(version)
        if self._module.training:
            if self._witness is not None:
                self._witness.has_trained = True
            return False
        if self.is_armed:
            self._disarm()
            self._warm(Signature.of(inputs), version)
        return True

    def _warm(self, signature: Signature, version: int) -> None:
        try:
            self._build = version, self.host.prepare(signature, version)
        except FATAL:
            raise
        except Exception as error:
            level = logging.INFO if isinstance(error, PlanFailed) else logging.WARNING
            log.log(level, "the %s stays eager after its training: %s", self.host.name, error)

    def _raise_fatal(self, version: int) -> None:
        """Raise what ended the build for good, once. A build of a version that is over was stopped for that reason."""
        if self._build is None or not self._build[1].done():
            return
        of_version, build = self._build
        self._build = None
        error = build.exception()
        if of_version == version and isinstance(error, FATAL):
            raise error

    def _disarm(self) -> None:
        """One shot: nothing of this watches the module afterwards."""
        self._witness = None
        self._hook.remove()

    def close(self) -> None:
        """Stop watching the module. The host is its owner's to close. Safe to call twice."""
        if self._witness is not None:
            self._disarm()
