"""One picture: request in, 8-bit RGB out. Every way of asking for a picture comes through `make_picture`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.cancellation import CancellationToken
from engine.errors import NonFiniteLatents, OutOfMemory
from engine.events import MadeWith, RgbImage
from engine.generation.denoise import Schedule, StepReport, denoise
from engine.generation.latents import check_finite, initial_noise
from engine.generation.preview import PreviewMaker, image_of
from engine.generation.prompt import PromptEncoder
from engine.generation.samplers import evaluations_per_step, make_scheduler
from engine.hosts.runner import Runner
from engine.lora.adapters import Adapters
from engine.lora.shelf import LoraShelf
from engine.models.components import Component
from engine.models.model import Model
from engine.plans.plan import EAGER, Signature
from engine.request import Backend, EngineSettings, GenerationRequest, Switch
from engine.vae.vae import to_rgb

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listeners:
    """Who hears of a picture's way: steps with the kind of plan at work, the start of the decode, waiting for plans."""

    step: Callable[[StepReport, str], None]
    decoding: Callable[[], None]
    building: Callable[[str, float], None]


class Painter:
    """A loaded model with what is kept between pictures: prompt embeddings, LoRAs, how long decodes took."""

    def __init__(self, model: Model, version: str) -> None:
        self.model = model
        self._prompts = PromptEncoder(model)
        self._loras = LoraShelf(model.modules, model.description.name, model.device, model.stream)
        self._version = version
        self._decode_seconds: dict[tuple[int, int, str], float] = {}

    async def make_picture(
        self,
        request: GenerationRequest,
        settings: Callable[[], EngineSettings],
        listeners: Listeners,
        token: CancellationToken,
    ) -> tuple[RgbImage, MadeWith]:
        """Make one picture. `settings` is asked anew at the decode, so that a changed switch takes effect there.

        Raises `RequestRefused` before any work, `ModelRefused` for a LoRA, `BackendUnavailable`,
        `NonFiniteLatents`, `OutOfMemory` and `OperationCancelled`.
        """
        token.raise_if_cancelled()
        self.model.description.check(request)
        chunks = max(len(self._prompts.chunks(request.prompt)), len(self._prompts.chunks(request.negative_prompt)))
        batch = 2 if request.guidance_scale > 1 else 1
        adapters = await self._loras.adapters(request.loras, token)
        needed = self.model.signatures(request.width, request.height, chunks, batch, adapters)
        kind = await self._choose_plan(request.backend, needed, settings(), listeners, token)
        poisoned = self.model.poisoned
        latents = await self._denoise(request, chunks, batch, adapters, kind, settings(), listeners, token)
        listeners.decoding()
        image = await self._decode_or_retry(latents, settings(), kind, token)
        if kind != EAGER and self.model.poisoned == poisoned:
            await self.model.release_weights(kind, needed)
        vae = self.model.vae
        made_with = MadeWith(
            plan=kind if self.model.poisoned == poisoned else f"{kind}, then {EAGER}",
            batch=batch,
            vae_tiling=vae.tiling,
            vae_slicing=vae.slicing,
            safelight=self._version,
            torch=torch.__version__,
            weights=self.model.weights_of(kind),
        )
        return image, made_with

    async def _choose_plan(
        self, backend: Backend, needed: list[tuple[Runner, Signature]], settings: EngineSettings, listeners: Listeners,
        token: CancellationToken,
    ) -> str:  # fmt: skip
        if backend is Backend.EAGER:
            return EAGER
        kind = self.model.ready_kind(needed, backend)
        if backend is not Backend.AUTO and (kind == EAGER or self.model.is_short_of(kind, needed)):
            await self.model.wait_for_plans(needed, backend, token, listeners.building)
            kind = self.model.ready_kind(needed, backend)
        if settings.build_plans:
            self.model.prepare(needed, backend)
        return kind

    async def _denoise(
        self, request: GenerationRequest, chunks: int, batch: int, adapters: Adapters, kind: str,
        settings: EngineSettings, listeners: Listeners, token: CancellationToken,
    ) -> torch.Tensor:  # fmt: skip
        model = self.model
        prompts = [request.negative_prompt, request.prompt][-batch:]
        encoded = [await self._prompts.encode(prompt, chunks, kind, token, adapters) for prompt in prompts]
        embeddings = torch.cat(encoded)
        scheduler = make_scheduler(request.sampler, model.description.scheduler_config, request.seed)
        scheduler.set_timesteps(request.steps)
        schedule = Schedule(
            scheduler,
            request.steps,
            evaluations_per_step(request.sampler),
            model.description.prediction,
        )
        factor = model.vae.factor
        height, width = request.height // factor, request.width // factor
        noise, generator = initial_noise(request.seed, model.latent_channels, height, width)

        unet = model.runner(Component.UNET, adapters.layers(Component.UNET.folder))
        added = adapters.inputs(Component.UNET.folder)

        async def predict(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
            inputs = (latents.to(model.dtype), timestep.to(model.device), prompt, *added)
            return (await unet.run(inputs, kind, token)).float()

        async def decode(latents: torch.Tensor) -> RgbImage:
            return image_of(to_rgb(await model.vae.decode(latents.to(model.dtype), kind, token)))

        previews = None
        if settings.previews:
            seconds = self._decode_seconds.get((width, height, kind))
            previews = PreviewMaker(model.description.latent_rgb, decode, seconds, settings.preview_interval)
        return await denoise(
            predict, schedule, noise, generator, embeddings, request.guidance_scale, token,
            lambda report: listeners.step(report, kind), previews,
        )  # fmt: skip

    async def _decode_or_retry(
        self, latents: torch.Tensor, settings: EngineSettings, kind: str, token: CancellationToken
    ) -> RgbImage:
        vae = self.model.vae
        vae.set_tiling(settings.vae_tiling is Switch.ON)
        vae.set_slicing(settings.vae_slicing is Switch.ON)
        try:
            return await self._decode(latents, kind, token)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            log.warning("the decode ran out of memory; trying again by tiles")
        self._prompts.forget()
        vae.set_tiling(settings.vae_tiling is not Switch.OFF)
        vae.set_slicing(True)
        try:
            return await self._decode(latents, kind, token)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            width, height = (side * vae.factor // 2 for side in (latents.shape[3], latents.shape[2]))
            fitting = self.model.description.nearest_side(width), self.model.description.nearest_side(height)
            raise OutOfMemory(
                f"There isn't enough memory to decode this picture. {fitting[0]}×{fitting[1]} needs a quarter of it."
            ) from error

    async def _decode(self, latents: torch.Tensor, kind: str, token: CancellationToken) -> RgbImage:
        started = time.perf_counter()
        picture = await self.model.vae.decode(latents.to(self.model.dtype), kind, token)
        check_finite(picture, "The decoded picture")
        self._decode_seconds[(latents.shape[3], latents.shape[2], kind)] = time.perf_counter() - started
        return image_of(to_rgb(picture))

    def close(self) -> None:
        self._prompts.forget()
        self.model.close()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python or torch says that memory ran out."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def precision_remedy(error: NonFiniteLatents, dtype: torch.dtype) -> str:
    """The sentence for a run whose latents stopped being numbers, in the precision it ran in."""
    name = str(dtype).removeprefix("torch.")
    return f"{error} No picture was saved. It ran in {name}; another sampler, more steps or less guidance may help."
