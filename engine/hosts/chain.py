"""Hosts that run one into the next, each with its own structure version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.cancellation import CancellationToken
from engine.hosts.host import CompiledModelHost
from engine.plans.plan import Plan

if TYPE_CHECKING:
    import torch

Arrange = Callable[["torch.Tensor", "Sequence[torch.Tensor]"], "Sequence[torch.Tensor]"]


def handed_on_first(handed: torch.Tensor, side: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The inputs of most stages: the output of the stage before, then the side inputs."""
    return (handed, *side)


@dataclass(frozen=True)
class Stage:
    """How a chain runs one of its hosts in one call.

    `eager` answers where the host has no plan. `arrange(handed, side)` makes the stage's inputs from the output of the
    stage before and the stage's side inputs; it may reorder and view them, and copies nothing.
    """

    eager: Plan
    arrange: Arrange = handed_on_first


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
        an element for each host, else `ValueError` is raised before any work. `compiled=False` asks for eager answers.
        """
        for host, version, stage, side in self._plan_calls(versions, stages, side_inputs):
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
        """`predict` without blocking the loop, bit for bit the same."""
        for host, version, stage, side in self._plan_calls(versions, stages, side_inputs):
            token.raise_if_cancelled()
            x = await host.predict_async(stage.arrange(x, side), version, stage.eager, token, compiled)
        return x

    def _plan_calls(
        self,
        versions: Sequence[int],
        stages: Sequence[Stage],
        side_inputs: Sequence[Sequence[torch.Tensor]] | None,
    ) -> list[tuple[CompiledModelHost, int, Stage, Sequence[torch.Tensor]]]:
        if side_inputs is None:
            side_inputs = [()] * len(self.hosts)
        given = {"versions": len(versions), "stages": len(stages), "sets of side inputs": len(side_inputs)}
        for what, count in given.items():
            if count != len(self.hosts):
                raise ValueError(f"The chain has {len(self.hosts)} stages, and {count} {what} were given.")
        return list(zip(self.hosts, versions, stages, side_inputs, strict=True))

    def close(self) -> None:
        """Close every stage's host. Safe to call twice."""
        for host in self.hosts:
            host.close()
