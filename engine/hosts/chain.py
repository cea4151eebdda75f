"""Hosts that run one into the next, each with its own structure version."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from engine.cancellation import CancellationToken
from engine.hosts.host import CompiledModelHost
from engine.plans.plan import Plan

if TYPE_CHECKING:
    import torch

Arrange = Callable[["torch.Tensor", "Sequence[torch.Tensor]"], "Sequence[torch.Tensor]"]
Call = Callable[["Sequence[torch.Tensor]"], "Awaitable[torch.Tensor]"]
Drive = Callable[[Call, "Sequence[torch.Tensor]"], "Awaitable[torch.Tensor]"]


def handed_on_first(handed: torch.Tensor, side: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The inputs of most stages: the output of the stage before, then the side inputs."""
    return (handed, *side)


@dataclass(frozen=True)
class Stage:
    """How a chain runs one of its hosts in one call.

    `eager` answers where the host has no plan. `arrange(handed, side)` makes the stage's inputs from the output of the
    stage before and the stage's side inputs; it may reorder and view them, and copies nothing.

    A stage that isn't one call of its host has a `drive`: it is given what calls the host and the arranged inputs, and
    calls as often as it needs to, for a prompt's chunks or the steps of a denoising loop. What it returns is handed on.
    """

    eager: Plan
    arrange: Arrange = handed_on_first
    drive: Drive | None = None


class ChainedCompiledModelHost:
    """Runs hosts in order; the output of each is an input of the next, handed on as it is, without a copy.

    Each stage has its own structure version: raising one drops that stage's plans alone. The chain owns its hosts:
    `close` closes them all, and afterwards every call raises `HostClosed`.
    """

    def __init__(self, hosts: Sequence[CompiledModelHost]) -> None:
        """Raises `ValueError` for a chain without hosts."""
        if not hosts:
            raise ValueError("A chain needs at least one host.")
        self.hosts = tuple(hosts)

    def predict(
        self,
        x: torch.Tensor,
        versions: Sequence[int],
        stages: Sequence[Stage],
        token: CancellationToken = CancellationToken.none,
        side_inputs: Sequence[Sequence[torch.Tensor]] | None = None,
        compiled: bool = True,
    ) -> torch.Tensor:
        """The output of the last stage for `x`, the handed-on input of the first.

        `versions`, `stages` and `side_inputs` (as from the text encoder for cross-attention; none where left out) have
        an element for each host, else `ValueError` is raised before any work, as it is for a stage that is driven.
        `compiled=False` asks for eager answers.
        """
        if any(stage.drive is not None for stage in stages):
            raise ValueError("A driven stage runs in predict_async alone.")
        for host, version, stage, side in self._calls(versions, stages, side_inputs):
            token.raise_if_cancelled()
            x = host.predict(stage.arrange(x, side), version, stage.eager, token, compiled)
        return x

    async def predict_async(
        self,
        x: torch.Tensor,
        versions: Sequence[int],
        stages: Sequence[Stage],
        token: CancellationToken = CancellationToken.none,
        side_inputs: Sequence[Sequence[torch.Tensor]] | None = None,
        compiled: bool = True,
    ) -> torch.Tensor:
        """`predict` without blocking the loop, bit for bit the same; also for stages that are driven.

        A stage's version is taken from `versions` when the stage begins, so that a live sequence can tell of a switch
        that was flipped while the stages before it ran.
        """
        for host, version, stage, side in self._calls(versions, stages, side_inputs):
            token.raise_if_cancelled()
            call = partial(host.predict_async, version=version, eager=stage.eager, token=token, compiled=compiled)
            inputs = stage.arrange(x, side)
            x = await (call(inputs) if stage.drive is None else stage.drive(call, inputs))
        return x

    def _calls(
        self,
        versions: Sequence[int],
        stages: Sequence[Stage],
        side_inputs: Sequence[Sequence[torch.Tensor]] | None,
    ) -> Iterator[tuple[CompiledModelHost, int, Stage, Sequence[torch.Tensor]]]:
        if side_inputs is None:
            side_inputs = [()] * len(self.hosts)
        given = {"versions": len(versions), "stages": len(stages), "sets of side inputs": len(side_inputs)}
        for what, count in given.items():
            if count != len(self.hosts):
                raise ValueError(f"The chain has {len(self.hosts)} stages, and {count} {what} were given.")
        return zip(self.hosts, versions, stages, side_inputs, strict=True)

    def close(self) -> None:
        """Close every stage's host. Safe to call twice."""
        for host in self.hosts:
            host.close()
