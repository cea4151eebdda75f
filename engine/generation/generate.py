"""One picture: request in, 8-bit RGB out. Every way of asking for a picture comes through `make_picture`."""

from __future__ import annotations

from collections.abc import Callable

import torch

from engine.cancellation import CancellationToken
from engine.errors import NonFiniteLatents
from engine.events import MadeWith, RgbImage
from engine.generation.pipeline import Listeners, Pipeline, prompts_of
from engine.generation.prompt import PromptEncoder
from engine.hosts.runner import Runner
from engine.lora.shelf import LoraShelf
from engine.models.model import Model
from engine.plans.plan import EAGER, Signature
from engine.request import Backend, EngineSettings, GenerationRequest


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
        chunks = self._prompts.chunks_of(request.prompt, request.negative_prompt)
        batch = len(prompts_of(request))
        adapters = await self._loras.adapters(request.loras, token)
        needed = self.model.signatures(request.width, request.height, chunks, batch, adapters)
        kind = await self._choose_plan(request.backend, needed, settings(), listeners, token)
        poisoned = self.model.poisoned
        pipeline = Pipeline(self.model, self._prompts, self._decode_seconds, kind, adapters, token)
        image = await pipeline.run(request, settings, listeners)
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

    def close(self) -> None:
        self._prompts.forget()
        self.model.close()


def precision_remedy(error: NonFiniteLatents, dtype: torch.dtype) -> str:
    """The sentence for a run whose latents stopped being numbers, in the precision it ran in."""
    name = str(dtype).removeprefix("torch.")
    return f"{error} No picture was saved. It ran in {name}; another sampler, more steps or less guidance may help."
