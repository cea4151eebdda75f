"""One training loop for every network of the recipe, which a broken run takes up where its last checkpoint left it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from tqdm import tqdm

from files import load_tensors, save_tensors

BatchLoss = Callable[[torch.Generator], Tensor]


@dataclass(frozen=True)
class Schedule:
    """Learning rate: a linear warm-up over `warmup` steps, then half a cosine down to `floor` times `peak`.

    The cosine runs over the time budget, not over steps: the machine decides how many steps fit.
    """

    peak: float
    warmup: int
    floor: float

    def rate(self, step: int, progress: float) -> float:
        """`step` counts from 0, `progress` is in 0..1."""
        cosine = 0.5 * (1 + math.cos(math.pi * min(progress, 1)))
        return self.peak * min(1, (step + 1) / self.warmup) * (self.floor + (1 - self.floor) * cosine)


class Average:
    """Exponential moving average of a network's weights, over few steps at first and over some 1000 at last."""

    def __init__(self, network: nn.Module, longest: float = 0.999) -> None:
        self.weights = {name: value.detach().clone() for name, value in network.state_dict().items()}
        self._longest = longest

    @torch.no_grad()
    def update(self, network: nn.Module, step: int) -> None:
        """`step` counts from 1."""
        decay = min(self._longest, (1 + step) / (10 + step))
        for name, value in network.state_dict().items():
            self.weights[name].lerp_(value, 1 - decay)


class Training:
    """A network on its way: weights, their average, optimizer, random numbers, steps and seconds so far.

    `made_from` names what the network learns from (a digest); a checkpoint made from something else is passed over.
    Only parameters that require gradients are trained.
    """

    def __init__(self, network: nn.Module, schedule: Schedule, weight_decay: float, checkpoint: Path, made_from: str):
        self.network = network
        self.average = Average(network)
        self.step = 0
        self.seconds = 0.0
        self._schedule = schedule
        self._checkpoint = checkpoint
        self._made_from = made_from
        self._trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self._optimizer = torch.optim.AdamW(self._trained, betas=(0.9, 0.99), weight_decay=weight_decay, fused=True)
        self._generator = torch.Generator().manual_seed(0)
        if checkpoint.exists():
            self._resume()

    def run(
        self,
        batch_loss: BatchLoss,
        minutes: float,
        save_every: float = 60,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Train until `minutes` have been spent, earlier runs included. `batch_loss` draws from the generator alone.

        Raises `FloatingPointError` for a loss that is no number; the last checkpoint is then still good.
        """
        budget = 60 * minutes
        saved_at = self.seconds
        with tqdm(total=round(budget), initial=round(self.seconds), desc=self._checkpoint.stem, unit="s") as bar:
            last = clock()
            while self.seconds < budget:
                loss = self._train_one(batch_loss, self.seconds / budget)
                now = clock()
                self.seconds, last = self.seconds + now - last, now
                bar.set_postfix_str(f"step {self.step}, loss {loss:.4f}", refresh=False)
                bar.update(min(round(self.seconds), bar.total) - bar.n)
                if self.seconds - saved_at >= save_every:
                    self.save()
                    saved_at = self.seconds
        self.save()

    def save(self) -> None:
        save_tensors(
            self._checkpoint,
            {
                "made_from": self._made_from,
                "network": self.network.state_dict(),
                "average": self.average.weights,
                "optimizer": self._optimizer.state_dict(),
                "generator": self._generator.get_state(),
                "step": self.step,
                "seconds": self.seconds,
            },
        )

    def _resume(self) -> None:
        saved = load_tensors(self._checkpoint)
        if saved["made_from"] != self._made_from:
            return
        self.network.load_state_dict(saved["network"])
        self.average.weights = saved["average"]
        self._optimizer.load_state_dict(saved["optimizer"])
        self._generator.set_state(saved["generator"])
        self.step, self.seconds = saved["step"], saved["seconds"]

    def _train_one(self, batch_loss: BatchLoss, progress: float) -> float:
        rate = self._schedule.rate(self.step, progress)
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        loss = batch_loss(self._generator)
        if not torch.isfinite(loss):
            raise FloatingPointError(f"{self._checkpoint.stem}: the loss is {loss.item()} at step {self.step}")
        self._optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self._trained, 1.0)
        self._optimizer.step()
        self.step += 1
        self.average.update(self.network, self.step)
        return loss.item()


def random_indices(count: int, batch: int, generator: torch.Generator) -> Tensor:
    """int64 [batch], each in 0..count - 1."""
    return torch.randint(count, (batch,), generator=generator)


def freeze(modules: Iterable[nn.Module]) -> None:
    for module in modules:
        module.requires_grad_(False)
