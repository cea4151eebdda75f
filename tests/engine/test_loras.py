"""Pictures with LoRAs: what diffusers makes with them, new numbers instead of new plans, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.cancellation import CancellationToken
from engine.engine import Engine
from engine.errors import ModelRefused, OperationCancelled
from engine.events import Building, Event, Finished
from engine.request import Backend, EngineSettings, GenerationRequest, LoraUse, Sampler
from tests.engine.generation.running import encode as encode_one
from tests.engine.lora import written

BACKENDS = pytest.mark.parametrize("backend", [Backend.EAGER, Backend.OPENVINO])


@pytest.fixture(scope="module")
def plan_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("plans")


@pytest.fixture(scope="module")
def engine(plan_folder: Path, torch_imported: None) -> Iterator[Engine]:
    with Engine(EngineSettings(plan_folder=plan_folder, build_plans=False, previews=False)) as engine:
        yield engine


@pytest.fixture(scope="module")
def lora_folder(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """LoRAs for the tiny model, by rank: 2 and 4 on the attention of both parts, "unet" without a text encoder's."""
    from engine.lora.layout import attention_layers
    from engine.models.load import load_module

    folder = tmp_path_factory.mktemp("loras")
    unet, text = load_module(tiny_model, "unet"), load_module(tiny_model, "text_encoder")
    layers, text_layers = attention_layers(unet), attention_layers(text)
    text_layers = tuple(layer for layer in text_layers if "self_attn" in layer)
    for rank in (2, 4):
        # alpha is the rank: diffusers' reader loses alphas of some layers
        pairs = tuple(
            written.random_pairs(module, names, rank, rank, float(rank))
            for module, names in ((unet, layers), (text, text_layers))
        )
        written.save(folder / f"{rank}.safetensors", written.kohya(*_named(*pairs)))
    written.save(folder / "unet.safetensors", written.kohya(written.random_pairs(unet, layers, 3, 3)))
    wide = {layer: (down.repeat(1, 2), up, alpha) for layer, (down, up, alpha) in pairs[0].items() if down.dim() == 2}
    written.save(folder / "wide.safetensors", written.kohya(wide))
    return folder


def _named(unet: written.Pairs, text: written.Pairs) -> tuple[written.Pairs, written.Pairs]:
    return unet, {layer.removeprefix("text_model."): pair for layer, pair in text.items()}


def asking(model: Path, backend: Backend = Backend.EAGER, **uses: Any) -> GenerationRequest:
    """A small picture; `uses` are files and strengths."""
    loras = tuple(LoraUse(file=str(file), strength=strength) for file, strength in uses.pop("loras", ()))
    return GenerationRequest(
        prompt="a dog", negative_prompt="fog", width=64, height=48, steps=3, guidance_scale=5, sampler=Sampler.DDIM,
        seed=5, model=str(model), backend=backend, loras=loras,
    )  # fmt: skip


def made(engine: Engine, request: GenerationRequest) -> tuple[bytes, list[Event]]:
    events: list[Event] = []
    return engine.generate(request, on_event=events.append).image.pixels, events


def largest_difference(one: bytes, other: bytes) -> int:
    return max(abs(a - b) for a, b in zip(one, other, strict=True))


def with_diffusers(model: Path, loras: list[tuple[Path, float]]) -> bytes:
    """The same picture by diffusers' own pipeline, its own reader and PEFT."""
    import torch
    from diffusers import StableDiffusionPipeline

    from engine.generation.latents import initial_noise
    from engine.generation.samplers import make_scheduler
    from engine.models.description import describe

    pipeline = StableDiffusionPipeline.from_pretrained(model, safety_checker=None, feature_extractor=None)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.scheduler = make_scheduler(Sampler.DDIM, describe(str(model)).scheduler_config, 5)
    for file, _ in loras:
        pipeline.load_lora_weights(file.parent, weight_name=file.name, adapter_name=f"r{file.stem}")
    pipeline.set_adapters([f"r{file.stem}" for file, _ in loras], [strength for _, strength in loras])
    noise, _ = initial_noise(5, 4, 48 // 2, 64 // 2)
    with torch.inference_mode():
        picture = pipeline(
            "a dog", negative_prompt="fog", width=64, height=48, num_inference_steps=3, guidance_scale=5,
            latents=noise, output_type="pil",
        ).images[0]  # fmt: skip
    return bytes(picture.tobytes())


@BACKENDS
def test_stacked_loras_make_the_picture_that_diffusers_makes(
    engine: Engine, tiny_model: Path, lora_folder: Path, backend: Backend
) -> None:
    loras = [(lora_folder / "2.safetensors", 0.8), (lora_folder / "4.safetensors", -0.4)]
    picture, _ = made(engine, asking(tiny_model, backend, loras=loras))
    assert largest_difference(picture, with_diffusers(tiny_model, loras)) <= 1
    assert largest_difference(picture, made(engine, asking(tiny_model, backend))[0]) > 8


@BACKENDS
def test_strengths_of_zero_make_the_picture_without_loras(
    engine: Engine, tiny_model: Path, lora_folder: Path, backend: Backend
) -> None:
    without, _ = made(engine, asking(tiny_model, backend))
    loras = [(lora_folder / "2.safetensors", 0.0), (lora_folder / "4.safetensors", 0.0)]
    assert made(engine, asking(tiny_model, backend, loras=loras))[0] == without
    assert made(engine, asking(tiny_model, backend, loras=[(loras[0][0], 1.0)]))[0] != without
    assert made(engine, asking(tiny_model, backend))[0] == without


def test_another_strength_and_another_lora_build_no_plan(
    engine: Engine, tiny_model: Path, lora_folder: Path, plan_folder: Path
) -> None:
    two, four, unet = (lora_folder / f"{name}.safetensors" for name in ("2", "4", "unet"))
    made(engine, asking(tiny_model, Backend.OPENVINO))
    first, _ = made(engine, asking(tiny_model, Backend.OPENVINO, loras=[(four, 1.0)]))
    stored = sorted(plan_folder.iterdir())
    pictures = [first]
    for loras in ([(four, 0.3)], [(two, 1.0)], [(unet, -1.0)], [(two, 0.5), (four, 0.5)], [(four, 0.0)]):
        picture, events = made(engine, asking(tiny_model, Backend.OPENVINO, loras=loras))
        assert not any(isinstance(event, Building) for event in events)
        pictures.append(picture)
    assert sorted(plan_folder.iterdir()) == stored
    assert len(set(pictures)) == len(pictures)
    assert made(engine, asking(tiny_model, Backend.OPENVINO, loras=[(four, 1.0)]))[0] == first


def test_a_lora_without_a_text_encoder_leaves_the_prompt_as_it_was(
    tiny_model: Path, lora_folder: Path, plan_folder: Path
) -> None:
    """Seen from the counters of the text encoder: it isn't asked again for embeddings that it has given."""
    import asyncio

    from engine.generation.prompt import PromptEncoder
    from engine.lora.shelf import LoraShelf
    from engine.models.description import describe
    from engine.models.model import load
    from engine.plans.eager import EagerStream

    async def encode() -> list[Any]:
        import torch

        token, stream = CancellationToken(), EagerStream()
        model = await load(
            describe(str(tiny_model)), stream, None, "cpu", torch.float32, lambda what, fraction: None, token
        )
        shelf, encoder = LoraShelf(model.modules, "tiny", "cpu", stream), PromptEncoder(model)
        answers = []
        for loras in ((), (("unet", 1.0),), (("2", 1.0),), (("2", 0.5),), (("2", 0.0),), (("2", 1.0), ("unet", 0.1))):
            uses = [LoraUse(file=str(lora_folder / f"{name}.safetensors"), strength=at) for name, at in loras]
            adapters = await shelf.adapters(uses, token)
            answers.append((await encode_one(encoder, model, "a dog", 1, adapters=adapters)).embeddings)
        model.close()
        stream.close()
        return answers

    plain, unet_alone, whole, half, none, stacked = asyncio.run(encode())
    assert unet_alone is plain
    assert none is plain
    assert not (whole == plain).all()
    assert not (whole == half).all()
    assert stacked is whole


def test_a_file_that_has_changed_is_read_again(
    engine: Engine, tiny_model: Path, lora_folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "mine.safetensors"
    file.write_bytes((lora_folder / "2.safetensors").read_bytes())
    before, _ = made(engine, asking(tiny_model, loras=[(file, 1.0)]))
    replacement = tmp_path / "new"
    replacement.write_bytes((lora_folder / "4.safetensors").read_bytes())
    replacement.replace(file)
    after, _ = made(engine, asking(tiny_model, loras=[(file, 1.0)]))
    assert after != before
    assert after == made(engine, asking(tiny_model, loras=[(lora_folder / "4.safetensors", 1.0)]))[0]


@pytest.mark.parametrize(
    ("name", "why"), [("wide", "another size"), ("none", "doesn't exist|no such file|isn't there")]
)
def test_a_lora_that_cant_be_used_is_refused_by_name_and_the_next_picture_is_made(
    engine: Engine, tiny_model: Path, lora_folder: Path, name: str, why: str
) -> None:
    file = lora_folder / f"{name}.safetensors"
    with pytest.raises(ModelRefused, match=rf"(?i){name}\.safetensors.*({why})"):
        engine.generate(asking(tiny_model, loras=[(file, 1.0)]))
    assert isinstance(engine.generate(asking(tiny_model)), Finished)


def test_a_cancel_before_the_lora_is_read_ends_the_picture(engine: Engine, tiny_model: Path, lora_folder: Path) -> None:
    request = asking(tiny_model, loras=[(lora_folder / "2.safetensors", 1.0)])
    job = engine.submit(request)
    job.cancel()
    with pytest.raises(OperationCancelled):
        job.result()
    assert isinstance(engine.generate(request), Finished)


async def test_a_large_model_holds_its_plans_once_with_or_without_loras(
    tiny_model: Path, lora_folder: Path, plan_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    from engine.events import RgbImage
    from engine.generation.generate import Painter
    from engine.generation.pipeline import Listeners
    from engine.models import model as models
    from engine.models.description import describe
    from engine.plans.builder import PlanBuilder
    from engine.plans.eager import EagerStream
    from engine.plans.plan import OPENVINO_STATIC

    monkeypatch.setattr(models, "LARGE", 1)
    token, stream, builder = CancellationToken(), EagerStream(), PlanBuilder(plan_folder)
    model = await models.load(
        describe(str(tiny_model)), stream, builder, "cpu", torch.float32, lambda what, fraction: None, token
    )
    painter = Painter(model, "1")
    listeners = Listeners(step=lambda *_: None, decoding=lambda: None, building=lambda *_: None)

    async def paint(request: GenerationRequest) -> RgbImage:
        settings = EngineSettings(build_plans=False, previews=False)
        return (await painter.make_picture(request, lambda: settings, listeners, token))[0]

    lora = [(lora_folder / "2.safetensors", 1.0)]
    plain = asking(tiny_model, Backend.OPENVINO)
    needed = model.signatures(64, 48, 1, 2)
    first = await paint(plain)
    assert all(runner.ready(signature, OPENVINO_STATIC) for runner, signature in needed)
    await paint(asking(tiny_model, Backend.OPENVINO, loras=lora))
    ready = [runner.ready(signature, OPENVINO_STATIC) for runner, signature in needed]
    assert ready == [False, False, True]  # the VAE's is the same plan with and without
    assert await paint(plain) == first
    painter.close()
    builder.close()
    stream.close()
