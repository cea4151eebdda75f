"""One loaded model: its modules, their hosts, and the choice of who makes a picture."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from engine.cancellation import CancellationToken
from engine.errors import BackendUnavailable, OperationCancelled, PlanFailed
from engine.hosts.host import CompiledModelHost
from engine.hosts.runner import Runner
from engine.importing import collector_resting
from engine.lora.adapted import with_adapters
from engine.lora.adapters import NO_ADAPTERS, Adapters
from engine.models.components import TEXT_ENCODERS, Component, as_function, pooled_width, takes_sizes
from engine.models.description import ModelDescription
from engine.models.family import family_named
from engine.models.load import load_module, load_tokenizer
from engine.models.weights import PartWeights
from engine.plans.backends import KINDS, automatic
from engine.plans.builder import PlanBuilder, PlanSource
from engine.plans.eager import EagerStream, unless_cancelled
from engine.plans.plan import EAGER, INDUCTOR, OPENVINO_DYNAMIC, OPENVINO_STATIC, Signature
from engine.request import Backend, Weights
from engine.vae.vae import Vae

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Each plan holds its module's weights once more. A small module keeps plans for the last sizes and one for every size;
# a large one, from so many bytes in f32, keeps a single plan, and runs eagerly while that for a new size is compiled.
KEPT_SIZES, LARGE = 2, 500_000_000


class Model:
    """A model in memory. Made by `load`; belongs to the engine thread; `close` gives its plans and memory back."""

    def __init__(
        self,
        description: ModelDescription,
        modules: dict[str, Any],
        tokenizers: Sequence[PreTrainedTokenizerBase],
        stream: EagerStream,
        builder: PlanBuilder | None,
        on_ready: Callable[[], None] = lambda: None,
        weights: Weights = Weights.FULL,
    ) -> None:
        self.description = description
        self.kept_weights = weights
        self.tokenizers = tuple(tokenizers)
        self.stream = stream
        self.device = str(next(modules["unet"].parameters()).device)
        self.device_type = next(modules["unet"].parameters()).device.type
        self.dtype: torch.dtype = modules["unet"].dtype
        self.latent_channels: int = modules["unet"].config.in_channels
        self.prompt_width: int = modules["unet"].config.cross_attention_dim
        self.pooled_width = pooled_width(modules["unet"]) if takes_sizes(modules["unet"]) else None
        self.uses_attention_mask = bool(getattr(modules["text_encoder"].config, "use_attention_mask", False))
        self.modules = modules
        self.weights = {part: PartWeights(module, description.folder, part) for part, module in modules.items()}
        self._builder, self._on_ready = builder, on_ready
        two = "text_encoder_2" in modules
        self.text_encoders = TEXT_ENCODERS[1:] if two else TEXT_ENCODERS[:1]
        self._runners: dict[tuple[Component, tuple[str, ...]], Runner] = {}
        for component in (*self.text_encoders, Component.UNET):
            self.runner(component)
        self.vae = Vae(modules["vae"], self.runner(Component.VAE_ENCODER), self.runner(Component.VAE_DECODER), stream)

    def runner(self, component: Component, adapted: tuple[str, ...] = ()) -> Runner:
        """What runs a component as it is or, with further inputs, with low-rank pairs on the layers `adapted`.

        Each has plans of its own; all share the component's weights.
        """
        key = component, adapted
        if key not in self._runners:
            hosts, function = self._hosts(component, adapted), self._restoring(component, adapted)
            self._runners[key] = Runner(component, hosts, function, self.stream)
        return self._runners[key]

    def _hosts(self, component: Component, adapted: tuple[str, ...]) -> dict[str, CompiledModelHost]:
        builder = self._builder
        if builder is None:
            return {}
        kept = Weights.FULL if component.folder == "vae" else self.kept_weights
        source = PlanSource(self.description.folder, component, component.folder, adapted, kept)

        def host(kind: str) -> CompiledModelHost:
            build = partial(builder.build, source, kind)
            opened, capacity = kind == OPENVINO_DYNAMIC, 1 if large else KEPT_SIZES
            return CompiledModelHost(component, build, self._on_ready, open_sizes=opened, capacity=capacity)

        large = self._is_large(component)
        hosts = {kind: host(kind) for kind in (OPENVINO_STATIC, INDUCTOR)}
        if component in TEXT_ENCODERS:  # prompts are encoded in chunks of one size
            hosts[OPENVINO_DYNAMIC] = hosts[OPENVINO_STATIC]
        elif not large:
            hosts[OPENVINO_DYNAMIC] = host(OPENVINO_DYNAMIC)
        return hosts

    def _is_large(self, component: Component) -> bool:
        return self.weights[component.folder].bytes_in_f32 >= LARGE

    def _restoring(self, component: Component, adapted: tuple[str, ...]) -> Callable[..., torch.Tensor]:
        """The component's function, reading its weights again first where they were given up."""
        function = with_adapters(as_function(component, self.modules[component.folder]), adapted)
        weights, checkpoint = self.weights[component.folder], self.stream.checkpoint

        def run(*inputs: torch.Tensor) -> torch.Tensor:
            weights.restore(checkpoint)
            answer: torch.Tensor = function(*inputs)
            return answer

        return run

    def weights_of(self, kind: str) -> Weights:
        """In which form the weights are that make a picture with this kind of plan."""
        if self.kept_weights is Weights.FULL or kind in KINDS[Backend.INDUCTOR]:
            return Weights.FULL
        return self.kept_weights if kind in KINDS[Backend.OPENVINO] else Weights.HALF

    def signatures(
        self, width: int, height: int, prompt_chunks: int, batch: int, adapters: Adapters = NO_ADAPTERS
    ) -> list[tuple[Runner, Signature]]:
        """What a picture of this size, prompt length, guidance and LoRAs runs; `batch` is the noise predictor's."""
        length = self.description.text_length
        factor = self.vae.factor
        latents = (self.latent_channels, height // factor, width // factor)
        prompt = (batch, length * prompt_chunks, self.prompt_width)
        sizes = () if self.pooled_width is None else ((batch, self.pooled_width), (batch, 6))
        unet = ((batch, *latents), (), prompt, *sizes)
        inputs: dict[Component, tuple[tuple[tuple[int, ...], str], ...]] = {
            **dict.fromkeys(self.text_encoders, (((1, length), "int64"), ((1, length), "int64"))),
            Component.UNET: tuple((shape, "float32") for shape in unet),
            Component.VAE_DECODER: (((1, *latents), "float32"),),
        }
        return [
            (
                self.runner(component, adapters.layers(component.folder)),
                Signature(own + tuple((tuple(x.shape), "float32") for x in adapters.inputs(component.folder))),
            )
            for component, own in inputs.items()
        ]

    def kinds(self, backend: Backend) -> tuple[str, ...]:
        """The kinds of plan that `backend` may make pictures with here, best first."""
        chosen = automatic(self.device_type) if backend is Backend.AUTO else backend
        runners = [self.runner(part) for part in (*self.text_encoders, Component.UNET, Component.VAE_DECODER)]
        return tuple(kind for kind in KINDS[chosen] if all(kind in runner.hosts for runner in runners))

    def prepare(self, needed: list[tuple[Runner, Signature]], backend: Backend) -> None:
        """Ask for plans, without waiting; signatures that can't have one are passed over."""
        for kind in self.kinds(backend):
            for runner, signature in needed:
                try:
                    runner.prepare(signature, kind, CancellationToken.none)
                except PlanFailed:
                    continue

    def ready_kind(self, needed: list[tuple[Runner, Signature]], backend: Backend) -> str:
        """The best kind of plan that can make this picture now, from first step to last."""
        for kind in self.kinds(backend):
            if all(runner.ready(signature, kind) for runner, signature in needed):
                return kind
        return EAGER

    def is_short_of(self, kind: str, needed: list[tuple[Runner, Signature]]) -> bool:
        """Whether better plans than those of `kind` had been there for this picture, and only have to be loaded again:
        who names a backend gets the same bits again after a cancel that ended a plan's process.
        """
        better = next(iter(kinds for kinds in KINDS.values() if kind in kinds))[0]
        return better != kind and all(runner.knows(signature, better) for runner, signature in needed)

    async def wait_for_plans(
        self,
        needed: list[tuple[Runner, Signature]],
        backend: Backend,
        token: CancellationToken,
        progress: Callable[[str, float], None],
    ) -> None:
        """Wait until every plan of the backend's best kind is ready; a cancelled wait ends the builds that it started,
        and only those. Raises `BackendUnavailable` with the reason where one can't be built.
        """
        kind = self.kinds(backend)[0]
        with token.linked() as own:
            try:
                waiting = [(runner, runner.prepare(signature, kind, own)) for runner, signature in needed]
                for done, (runner, plan) in enumerate(waiting):
                    if not plan.done():
                        progress(runner.name, done / len(needed))
                    await unless_cancelled(plan, own)
            except PlanFailed as error:
                raise BackendUnavailable(f"{error} Choose the eager backend, or auto.") from error
            except OperationCancelled:
                token.raise_if_cancelled()
                raise BackendUnavailable("Building the plans was stopped. Try again.") from None

    def renew_plans(self) -> None:
        """Give up every plan, for new ones made with what has changed in the settings."""
        for runner in self._runners.values():
            runner.renew()

    async def release_weights(self, kind: str, used: list[tuple[Runner, Signature]]) -> None:
        """Give up what is in memory more than once now that plans of this kind have made a picture with `used`.

        That is the torch weights of these parts, and a large part's plans with LoRAs where those without were used, or
        the other way round.
        """
        runners = {Component(runner.name): runner for runner, _ in used}
        for component, runner in runners.items():
            weights = self.weights[component.folder]
            if kind in runner.hosts and weights.are_present:
                await self.stream.run_async(weights.release, CancellationToken.none)
        for (component, _), other in self._runners.items():
            if self._is_large(component) and component in runners and other is not runners[component]:
                other.renew()

    @property
    def poisoned(self) -> int:
        """How many plans broke while running since the model was loaded."""
        return sum(runner.poisoned for runner in self._runners.values())

    def planned(self) -> list[str]:
        """The names of the modules that have plans."""
        return list(dict.fromkeys(runner.name for runner in list(self._runners.values()) if runner.has_plans))

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
    weights: Weights = Weights.FULL,
) -> Model:
    """Load a model on the eager stream. `progress` hears a part's name and the fraction of the whole. `weights` other
    than FULL are for f32 on the CPU.

    Raises `ModelRefused`, naming the file, and `OperationCancelled` between any two tensors; nothing stays then.
    """

    family = family_named(description.family)

    def read() -> tuple[dict[str, Any], list[PreTrainedTokenizerBase]]:
        done = 0.0
        modules: dict[str, Any] = {}
        for part, share in family.parts.items():
            name, start = part.replace("_", " "), done

            def report(fraction: float, name: str = name, start: float = start, share: float = share) -> None:
                progress(name, start + share * fraction)

            wanted = torch.float32 if part == "vae" and description.needs_vae_in_f32 else dtype
            narrow = weights is not Weights.FULL and part != "vae"
            modules[part] = load_module(description.folder, part, wanted, device, report, token, narrow)
            stream.watch(modules[part])
            done += share
        token.raise_if_cancelled()
        return modules, [load_tokenizer(description.folder, token, part) for part in family.tokenizers]

    with collector_resting():
        modules, tokenizers = await stream.run_async(read, token)
    await asyncio.sleep(0)
    token.raise_if_cancelled()
    return Model(description, modules, tokenizers, stream, builder, on_ready, weights)
