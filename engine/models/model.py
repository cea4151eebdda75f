"""One loaded model: its modules, their hosts, and the choice of who makes a picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from engine.cancellation import CancellationToken
from engine.errors import BackendUnavailable, OperationCancelled, PlanFailed
from engine.hosts.host import CompiledModelHost
from engine.hosts.runner import Runner
from engine.importing import collector_resting
from engine.models.components import Component, as_function
from engine.models.description import ModelDescription
from engine.models.load import load_module, load_tokenizer
from engine.plans.builder import PlanBuilder, PlanSource
from engine.plans.eager import EagerStream, unless_cancelled
from engine.plans.plan import EAGER, OPENVINO_STATIC, Signature
from engine.vae.vae import Vae

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Shares of a load, for its progress: by the size of what is read.
_PARTS = (("text_encoder", 0.2), ("unet", 0.7), ("vae", 0.1))


class Model:
    """A model in memory. Made by `load`; belongs to the engine thread; `close` gives its plans and memory back."""

    def __init__(
        self,
        description: ModelDescription,
        modules: dict[str, Any],
        tokenizer: PreTrainedTokenizerBase,
        stream: EagerStream,
        builder: PlanBuilder | None,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.description = description
        self.tokenizer = tokenizer
        self.stream = stream
        self.device = str(next(modules["unet"].parameters()).device)
        self.dtype: torch.dtype = modules["unet"].dtype
        self.latent_channels: int = modules["unet"].config.in_channels
        self.prompt_width: int = modules["unet"].config.cross_attention_dim
        self.uses_attention_mask = bool(getattr(modules["text_encoder"].config, "use_attention_mask", False))
        runners = {
            component: Runner(
                self._host(component, builder, on_ready), as_function(component, modules[component.folder]), stream
            )
            for component in Component
        }
        self.text_encoder = runners[Component.TEXT_ENCODER]
        self.unet = runners[Component.UNET]
        self.vae = Vae(modules["vae"], runners[Component.VAE_ENCODER], runners[Component.VAE_DECODER], stream)
        self._runners = runners

    def _host(
        self, component: Component, builder: PlanBuilder | None, on_ready: Callable[[], None]
    ) -> CompiledModelHost:
        if builder is None:
            return CompiledModelHost(component)
        source = PlanSource(self.description.folder, component, component.folder)
        return CompiledModelHost(component, lambda signature, token: builder.build(source, signature, token), on_ready)

    def signatures(self, width: int, height: int, prompt_chunks: int, batch: int) -> list[tuple[Runner, Signature]]:
        """What a picture of this size, prompt length and guidance runs; `batch` is the noise predictor's."""
        length = self.description.text_length
        factor = self.vae.factor
        latents = (self.latent_channels, height // factor, width // factor)
        prompt = (batch, length * prompt_chunks, self.prompt_width)
        return [
            (self.text_encoder, Signature((((1, length), "int64"), ((1, length), "int64")))),
            (self.unet, Signature((((batch, *latents), "float32"), ((), "float32"), (prompt, "float32")))),
            (self.vae.decoder, Signature((((1, *latents), "float32"),))),
        ]

    def prepare(self, needed: list[tuple[Runner, Signature]]) -> None:
        """Ask for plans, without waiting; signatures that can't have one are passed over."""
        for runner, signature in needed:
            try:
                runner.prepare(signature, CancellationToken.none)
            except PlanFailed:
                continue

    def ready_kind(self, needed: list[tuple[Runner, Signature]]) -> str:
        """The kind of plan that can make this picture now, from first step to last."""
        return OPENVINO_STATIC if all(runner.ready(signature) for runner, signature in needed) else EAGER

    async def wait_for_plans(
        self,
        needed: list[tuple[Runner, Signature]],
        token: CancellationToken,
        progress: Callable[[str, float], None],
    ) -> None:
        """Wait until every plan is ready; a cancelled wait ends the builds that it started, and only those.

        Raises `BackendUnavailable` with the reason where one can't be built.
        """
        with token.linked() as own:
            try:
                waiting = [(runner, runner.prepare(signature, own)) for runner, signature in needed]
                for done, (runner, plan) in enumerate(waiting):
                    if not plan.done():
                        progress(runner.name, done / len(needed))
                    await unless_cancelled(plan, own)
            except PlanFailed as error:
                raise BackendUnavailable(f"{error} Choose the eager backend, or auto.") from error
            except OperationCancelled:
                token.raise_if_cancelled()
                raise BackendUnavailable("Building the plans was stopped. Try again.") from None

    @property
    def poisoned(self) -> int:
        """How many plans broke while running since the model was loaded."""
        return sum(runner.host.counters.poisoned for runner in self._runners.values())

    def planned(self) -> list[str]:
        """The names of the modules that have plans."""
        return [runner.name for runner in self._runners.values() if runner.host.counters.plans_built]

    def close(self) -> None:
        for runner in self._runners.values():
            runner.close()


async def load(
    description: ModelDescription,
    stream: EagerStream,
    builder: PlanBuilder | None,
    device: str,
    dtype: torch.dtype,
    progress: Callable[[str, float], None],
    token: CancellationToken,
    on_ready: Callable[[], None] = lambda: None,
) -> Model:
    """Load a model on the eager stream. `progress` hears a part's name and the fraction of the whole.

    Raises `ModelRefused`, naming the file, and `OperationCancelled` between any two tensors; nothing stays then.
    """

    def read() -> tuple[dict[str, Any], PreTrainedTokenizerBase]:
        done = 0.0
        modules: dict[str, Any] = {}
        for part, share in _PARTS:
            name, start = part.replace("_", " "), done

            def report(fraction: float, name: str = name, start: float = start, share: float = share) -> None:
                progress(name, start + share * fraction)

            modules[part] = load_module(description.folder, part, dtype, device, report, token)
            stream.watch(modules[part])
            done += share
        token.raise_if_cancelled()
        return modules, load_tokenizer(description.folder)

    with collector_resting():
        modules, tokenizer = await stream.run_async(read, token)
    await asyncio.sleep(0)
    token.raise_if_cancelled()
    return Model(description, modules, tokenizer, stream, builder, on_ready)
