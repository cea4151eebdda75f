"""SDXL folders make the pictures that diffusers' own pipeline makes of them, eagerly and by OpenVINO's plans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import OperationCancelled
from engine.events import MadeWith, RgbImage
from engine.models.description import describe
from engine.request import Backend, EngineSettings, GenerationRequest, Sampler
from tests.engine.generation.conftest import load_eagerly
from tests.engine.generation.running import encode, watch
from tests.engine.tiny_model import CONTEXT, write_json
from tests.engine.tiny_sdxl import INDEX, POOLED

if TYPE_CHECKING:
    from engine.generation.denoise import StepReport
    from engine.generation.generate import Painter
    from engine.models.model import Model
    from engine.plans.builder import PlanBuilder
    from engine.plans.eager import EagerStream

NONE = CancellationToken.none
QUIET = EngineSettings(previews=False)
REQUEST = GenerationRequest(
    prompt="a red dog, two", width=40, height=32, steps=3, seed=3, sampler=Sampler.DDIM, guidance_scale=5.0
)
CHANGES: list[dict[str, Any]] = [
    {},
    {"negative_prompt": "a cat"},
    {"guidance_scale": 1.0},
    {"sampler": Sampler.EULER, "width": 48, "height": 48},
    {"prompt": "x" * 75},
]


@pytest.fixture(scope="module")
def model(tiny_sdxl: Path) -> Iterator[Model]:
    yield from load_eagerly(str(tiny_sdxl))


@pytest.fixture
def without_zeros(changed_sdxl: Path) -> Iterator[Model]:
    """A model that was trained with the embeddings of the empty prompt."""
    write_json(changed_sdxl / "model_index.json", INDEX | {"force_zeros_for_empty_prompt": False})
    yield from load_eagerly(str(changed_sdxl))


@pytest.fixture
def painter(model: Model) -> Painter:
    from engine.generation.generate import Painter

    return Painter(model, "1.2.3")


@pytest.fixture
def compiled(tiny_sdxl: Path, stream: EagerStream, tiny_builder: PlanBuilder) -> Iterator[Painter]:
    """A painter whose model can have plans."""
    import torch

    from engine.generation.generate import Painter
    from engine.models.model import load

    described = describe(str(tiny_sdxl))
    model = asyncio.run(load(described, stream, tiny_builder, "cpu", torch.float32, lambda what, fraction: None, NONE))
    yield Painter(model, "1.2.3")
    model.close()


async def make(
    painter: Painter,
    request: GenerationRequest = REQUEST,
    settings: EngineSettings = QUIET,
    token: CancellationToken = NONE,
    step: Callable[[StepReport, str], None] = lambda report, plan: None,
) -> tuple[RgbImage, MadeWith]:
    from engine.generation.pipeline import Listeners

    listeners = Listeners(step, lambda: None, lambda what, fraction: None)
    return await painter.make_picture(request, lambda: settings, listeners, token)


async def latents_and_levels(painter: Painter, request: GenerationRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The final latents of a picture, f32 [1, C, h, w], and its levels, uint8 [H, W, 3]."""
    import torch

    seen, decode = [], painter.model.vae.decode_by

    async def watched(call: Any, latents: Any, token: CancellationToken) -> Any:
        seen.append(latents)
        return await decode(call, latents, token)

    with monkeypatch.context() as patch:
        patch.setattr(painter.model.vae, "decode_by", watched)
        image, _ = await make(painter, request)
    levels = torch.frombuffer(bytearray(image.pixels), dtype=torch.uint8)
    return seen[0], levels.reshape(image.height, image.width, 3)


def by_diffusers(folder: Path, request: GenerationRequest) -> Any:
    """The same from diffusers' pipeline, with its own schedulers and the same noise."""
    import torch
    from diffusers import DDIMScheduler, EulerDiscreteScheduler, StableDiffusionXLPipeline

    from engine.generation.latents import initial_noise

    pipeline = StableDiffusionXLPipeline.from_pretrained(folder, local_files_only=True)
    pipeline.set_progress_bar_config(disable=True)
    scheduler = {Sampler.DDIM: DDIMScheduler, Sampler.EULER: EulerDiscreteScheduler}[request.sampler]
    pipeline.scheduler = scheduler.from_config(pipeline.scheduler.config)
    noise, generator = initial_noise(request.seed, 4, request.height // 2, request.width // 2)
    options = {
        "prompt": request.prompt,
        "negative_prompt": request.negative_prompt or None,
        "width": request.width,
        "height": request.height,
        "num_inference_steps": request.steps,
        "guidance_scale": request.guidance_scale,
        "generator": generator,
    }
    latents = pipeline(**options, latents=noise.clone(), output_type="latent").images
    picture = pipeline(**options, latents=noise.clone(), output_type="pt").images
    return latents, picture[0].permute(1, 2, 0).mul(255).round().to(torch.uint8)


def difference(ours: Any, theirs: Any) -> float:
    assert ours.shape == theirs.shape
    value: float = ((ours - theirs).abs().max() / theirs.abs().max()).item()
    return value


@pytest.mark.parametrize("change", CHANGES, ids=str)
async def test_an_eager_picture_is_that_of_diffusers(
    painter: Painter, tiny_sdxl: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    request = REQUEST.model_copy(update=change | {"backend": Backend.EAGER})
    latents, levels = await latents_and_levels(painter, request, monkeypatch)
    expected, picture = by_diffusers(tiny_sdxl, request)
    assert difference(latents, expected) <= 1e-4
    assert (levels.int() - picture.int()).abs().max() <= 1


@pytest.mark.parametrize("change", CHANGES[:3], ids=str)
async def test_a_picture_by_plans_is_that_of_diffusers(
    compiled: Painter, tiny_sdxl: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
) -> None:
    request = REQUEST.model_copy(update=change | {"backend": Backend.OPENVINO})
    latents, levels = await latents_and_levels(compiled, request, monkeypatch)
    expected, picture = by_diffusers(tiny_sdxl, request)
    assert difference(latents, expected) <= 1e-4
    assert (levels.int() - picture.int()).abs().max() <= 1
    assert compiled.model.planned() == [
        "first text encoder",
        "second text encoder",
        "noise predictor",
        "VAE decoder",
    ]
    assert not any(weights.are_present for weights in compiled.model.weights.values())


async def test_a_model_without_zeros_encodes_the_empty_negative_prompt(
    without_zeros: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.generation.generate import Painter

    latents, _ = await latents_and_levels(Painter(without_zeros, ""), REQUEST, monkeypatch)
    expected, _ = by_diffusers(without_zeros.description.folder, REQUEST)
    assert difference(latents, expected) <= 1e-4


async def test_a_long_prompt_is_encoded_in_full_by_both_encoders(model: Model) -> None:
    import torch

    from engine.generation.prompt import PromptEncoder

    encoder = PromptEncoder(model)
    prompt = " ".join("abcdefghij" * 8)  # each letter is a token
    assert [encoder.chunks_of("a", text) for text in ("b", prompt)] == [1, 2]
    for number, tokenizer in enumerate(model.tokenizers):
        long = await encode(encoder, model, prompt, 2, number=number)
        texts = [tokenizer.decode(chunk) for chunk in encoder.chunks(prompt, number)]
        pieces = [await encode(encoder, model, text, 1, number=number) for text in texts]
        assert long.embeddings.shape[:2] == (1, 2 * CONTEXT)
        assert torch.equal(long.embeddings, torch.cat([piece.embeddings for piece in pieces], dim=1))
    assert long.pooled is not None
    assert long.pooled.shape == (1, POOLED)
    assert pieces[0].pooled is not None
    assert torch.equal(long.pooled, pieces[0].pooled)


async def test_an_empty_negative_prompt_is_zeros_as_long_as_the_prompt(model: Model) -> None:
    import torch

    from engine.generation.prompt import PromptEncoder

    encoder = PromptEncoder(model)
    alone = await encode(encoder, model, "a dog", 2, number=1)
    both = await encode(encoder, model, (" ", "a dog"), 2, number=1)
    assert both.pooled is not None
    assert alone.pooled is not None
    assert torch.equal(both.embeddings, torch.cat([torch.zeros_like(alone.embeddings), alone.embeddings]))
    assert torch.equal(both.pooled, torch.cat([torch.zeros(1, POOLED), alone.pooled]))
    assert await encode(encoder, model, ("a dog",), 2, number=1) is alone


async def test_the_size_of_the_picture_goes_into_the_noise_predictor(
    painter: Painter, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.models.components import Component

    given: list[Any] = []
    watch(painter.model.runner(Component.UNET), monkeypatch, given.append)
    await make(painter)
    assert [inputs[4].tolist() for inputs in given] == [[[32, 40, 0, 0, 32, 40]] * 2] * REQUEST.steps
    assert all(inputs[2:] == given[0][2:] for inputs in given)  # the very tensors, so that a plan is sent them once


async def test_previews_come_and_a_cancel_ends_the_picture(painter: Painter) -> None:
    reports: list[StepReport] = []
    token = CancellationToken()

    def step(report: StepReport, plan: str) -> None:
        reports.append(report)
        if report.step == 2:
            token.cancel("Enough.")

    with pytest.raises(OperationCancelled, match="Enough"):
        await make(painter, settings=EngineSettings(preview_interval=0), token=token, step=step)
    assert [report.step for report in reports] == [1, 2]
    assert all(report.preview is not None for report in reports)


@pytest.mark.parametrize("encoder", [0, 1])
async def test_a_cancel_lands_in_either_text_encoder(
    painter: Painter, monkeypatch: pytest.MonkeyPatch, encoder: int
) -> None:
    token = CancellationToken()
    runner = painter.model.runner(painter.model.text_encoders[encoder])
    watch(runner, monkeypatch, lambda inputs: token.cancel("Enough."))
    with pytest.raises(OperationCancelled, match="Enough"):
        await make(painter, token=token)
