"""One picture's way through a model: text encoders, noise predictor and VAE decoder, run as one chain of hosts."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from engine.cancellation import CancellationToken
from engine.errors import OutOfMemory
from engine.events import RgbImage
from engine.generation.denoise import Schedule, StepReport, denoise
from engine.generation.encoded_prompt import EncodedPrompt
from engine.generation.latents import check_finite, initial_noise
from engine.generation.preview import PreviewMaker, image_of
from engine.generation.prompt import PromptEncoder
from engine.generation.samplers import evaluations_per_step, make_scheduler
from engine.hosts.chain import Call, ChainedCompiledModelHost, Drive, Stage
from engine.hosts.runner import Runner
from engine.lora.adapters import Adapters
from engine.models.components import Component
from engine.models.model import Model
from engine.request import EngineSettings, GenerationRequest, Switch
from engine.vae.vae import to_rgb

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Listeners:
    """Who hears of a picture's way: steps with the kind of plan at work, the start of the decode, waiting for plans."""

    step: Callable[[StepReport, str], None]
    decoding: Callable[[], None]
    building: Callable[[str, float], None]


def prompts_of(request: GenerationRequest) -> list[str]:
    """What the noise predictor sees as one batch: negative prompt and prompt, or the prompt alone without guidance."""
    return [request.negative_prompt, request.prompt] if request.guidance_scale > 1 else [request.prompt]


class Pipeline:
    """The chain of one picture: each stage's host runs the model's module with plans of one kind.

    A text encoder's stage encodes the prompts' chunks, the noise predictor's is the denoising loop, and the VAE's
    decodes, a second time by tiles where memory ran out.
    """

    def __init__(
        self, model: Model, prompts: PromptEncoder, decode_seconds: dict[tuple[int, int, str], float], kind: str,
        adapters: Adapters, token: CancellationToken,
    ) -> None:  # fmt: skip
        """`decode_seconds` keeps, from picture to picture, how long decodes took, by width, height and kind."""
        self._model = model
        self._prompts = prompts
        self._decode_seconds = decode_seconds
        self._kind = kind
        self._adapters = adapters
        self._token = token
        self._pooled: torch.Tensor | None = None

    async def run(
        self, request: GenerationRequest, settings: Callable[[], EngineSettings], listeners: Listeners
    ) -> RgbImage:
        """From the request to 8-bit RGB. `settings` is asked anew before the decode.

        Raises `NonFiniteLatents`, `OutOfMemory` and `OperationCancelled`.
        """
        texts = prompts_of(request)
        chunks = self._prompts.chunks_of(request.prompt, request.negative_prompt)
        encoders = self._model.text_encoders
        tokens = [
            torch.stack([self._prompts.tokens(text, chunks, number) for text in texts])
            for number in range(len(encoders))
        ]
        drives: list[tuple[Component, Drive, Sequence[torch.Tensor]]] = [
            (component, partial(self._encode, texts, number), tokens[number : number + 1] if number else ())
            for number, component in enumerate(encoders)
        ]
        drives.append((Component.UNET, partial(self._denoise, request, settings, listeners), ()))
        drives.append((Component.VAE_DECODER, partial(self._decode_or_retry, settings), ()))
        runners = [self._runner(component) for component, _, _ in drives]
        chain = ChainedCompiledModelHost([runner.host(self._kind) for runner in runners])
        stages = [Stage(runner.eager, drive=drive) for runner, (_, drive, _) in zip(runners, drives, strict=True)]
        side_inputs = [side for _, _, side in drives]
        picture = await chain.predict_async(tokens[0], _Versions(runners), stages, self._token, side_inputs)
        return image_of(to_rgb(picture))

    def _runner(self, component: Component) -> Runner:
        return self._model.runner(component, self._adapters.layers(component.folder))

    async def _encode(
        self, texts: Sequence[str], encoder: int, call: Call, inputs: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Tokens, after the embeddings of the encoder before, to both encoders' embeddings joined along their width."""
        *before, tokens = inputs
        encoded = await self._prompts.encode_batch(call, texts, tokens, self._kind, encoder, self._adapters)
        self._pooled = encoded.pooled
        return torch.cat([*before, encoded.embeddings], dim=2) if before else encoded.embeddings

    async def _denoise(
        self, request: GenerationRequest, settings: Callable[[], EngineSettings], listeners: Listeners, call: Call,
        inputs: Sequence[torch.Tensor],
    ) -> torch.Tensor:  # fmt: skip
        """Prompt embeddings to clean latents, with the VAE's switches set for what comes next."""
        model, kind, token = self._model, self._kind, self._token
        encoded = EncodedPrompt(inputs[0], self._pooled)
        embeddings, *added = encoded.side_inputs(request.width, request.height)
        added += self._adapters.inputs(Component.UNET.folder)
        scheduler = make_scheduler(request.sampler, model.description.scheduler_config, request.seed)
        scheduler.set_timesteps(request.steps)
        evaluations = evaluations_per_step(request.sampler)
        schedule = Schedule(scheduler, request.steps, evaluations, model.description.prediction)
        factor = model.vae.factor
        height, width = request.height // factor, request.width // factor
        noise, generator = initial_noise(request.seed, model.latent_channels, height, width)

        async def predict(latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
            return (await call((latents.to(model.dtype), timestep.to(model.device), prompt, *added))).float()

        async def preview(latents: torch.Tensor) -> RgbImage:
            return image_of(to_rgb(await model.vae.decode(latents, kind, token)))

        previews = None
        if settings().previews:
            seconds = self._decode_seconds.get((width, height, kind))
            previews = PreviewMaker(model.description.latent_rgb, preview, seconds, settings().preview_interval)
        latents = await denoise(
            predict, schedule, noise, generator, embeddings, request.guidance_scale, token,
            lambda report: listeners.step(report, kind), previews,
        )  # fmt: skip
        listeners.decoding()
        model.vae.set_tiling(settings().vae_tiling is Switch.ON)
        model.vae.set_slicing(settings().vae_slicing is Switch.ON)
        return latents

    async def _decode_or_retry(
        self, settings: Callable[[], EngineSettings], call: Call, inputs: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Scaled latents to a picture in about -1..1."""
        (latents,) = inputs
        model, vae = self._model, self._model.vae
        try:
            return await self._decode(latents, call)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            log.warning("the decode ran out of memory; trying again by tiles")
        self._prompts.forget()
        vae.set_tiling(settings().vae_tiling is not Switch.OFF)
        vae.set_slicing(True)
        try:
            return await self._decode(latents, call)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            width, height = (side * vae.factor // 2 for side in (latents.shape[3], latents.shape[2]))
            fitting = model.description.nearest_side(width), model.description.nearest_side(height)
            raise OutOfMemory(
                f"There isn't enough memory to decode this picture. {fitting[0]}×{fitting[1]} needs a quarter of it."
            ) from error

    async def _decode(self, latents: torch.Tensor, call: Call) -> torch.Tensor:
        started = time.perf_counter()
        picture = await self._model.vae.decode_by(call, latents, self._token)
        check_finite(picture, "The decoded picture")
        self._decode_seconds[(latents.shape[3], latents.shape[2], self._kind)] = time.perf_counter() - started
        return picture


class _Versions(Sequence[int]):
    """The runners' structure versions as they are when they are looked at."""

    def __init__(self, runners: Sequence[Runner]) -> None:
        self._runners = runners

    def __len__(self) -> int:
        return len(self._runners)

    def __getitem__(self, at: int) -> int:  # type: ignore[override]
        return self._runners[at].version


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error of Python or torch says that memory ran out."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)
