"""SDXL folders: what is known of them, and what is refused in which words."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import ModelRefused
from engine.models.description import ModelDescription, describe
from engine.models.latent_rgb import SDXL as SDXL_RGB
from engine.request import Sampler
from tests.engine.tiny_model import SIZE_MULTIPLE

if TYPE_CHECKING:
    from engine.plans.eager import EagerStream


def change(folder: Path, name: str, **changes: Any) -> None:
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def refusal(folder: Path) -> str:
    with pytest.raises(ModelRefused) as refused:
        describe(str(folder))
    return str(refused.value)


def test_a_folder_of_sdxl_is_described(tiny_sdxl: Path) -> None:
    model = describe(str(tiny_sdxl))
    assert (model.family, model.prediction) == ("sdxl", "epsilon")
    assert (model.size_multiple, model.text_length) == (SIZE_MULTIPLE, 77)
    assert (model.defaults.guidance_scale, model.defaults.sampler) == (5.0, Sampler.EULER)
    assert model.latent_rgb == SDXL_RGB
    assert (model.zeros_for_empty_prompt, model.needs_vae_in_f32) == (True, True)
    model.check(model.defaults)
    assert ModelDescription.model_validate_json(model.model_dump_json()) == model


def test_a_model_of_the_base_s_size_makes_pictures_of_1024_pixels(changed_sdxl: Path) -> None:
    change(changed_sdxl, "unet/config.json", sample_size=128, block_out_channels=[320, 640, 1280])
    change(changed_sdxl, "vae/config.json", block_out_channels=[128, 256, 512, 512])
    model = describe(str(changed_sdxl))
    assert (model.defaults.width, model.defaults.height, model.size_multiple) == (1024, 1024, 32)


def test_the_base_s_switches_are_read(changed_sdxl: Path) -> None:
    change(changed_sdxl, "model_index.json", force_zeros_for_empty_prompt=False)
    change(changed_sdxl, "vae/config.json", force_upcast=False)
    model = describe(str(changed_sdxl))
    assert (model.zeros_for_empty_prompt, model.needs_vae_in_f32) == (False, False)


@pytest.mark.parametrize("part", ["text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2", "unet", "vae"])
@pytest.mark.parametrize("left_out", [None, [None, None]], ids=["missing", "left out on purpose"])
def test_a_part_that_the_index_lacks_is_named(changed_sdxl: Path, part: str, left_out: Any) -> None:
    change(changed_sdxl, "model_index.json", **{part: left_out})
    assert refusal(changed_sdxl) == f"{changed_sdxl} isn't a Stable Diffusion XL model folder: it has no {part}."


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        ("tokenizer_2", "tokenizer_2 isn't a diffusers model folder: tokenizer_config.json is missing"),
        ("text_encoder_2", "text_encoder_2 holds no weights: a .safetensors file is missing"),
    ],
)
def test_a_folder_that_is_not_there_is_named(changed_sdxl: Path, part: str, sentence: str) -> None:
    shutil.rmtree(changed_sdxl / part)
    assert sentence in refusal(changed_sdxl)


def test_weights_of_the_second_text_encoder_that_were_cut_are_named(changed_sdxl: Path) -> None:
    weights = changed_sdxl / "text_encoder_2" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    assert refusal(changed_sdxl).startswith(f"{weights} is truncated or padded")


@pytest.mark.parametrize(
    ("file", "changes", "sentence"),
    [
        ("scheduler/scheduler_config.json", {"_class_name": "EDMEulerScheduler"}, "is sampled by an EDMEulerScheduler"),
        ("unet/config.json", {"cross_attention_dim": 32}, "don't belong together"),
        ("unet/config.json", {"projection_class_embeddings_input_dim": 2816}, "second text encoder don't belong"),
        ("unet/config.json", {"addition_embed_type": None}, "takes 'text_time' embeddings, and this one 'None'"),
        ("unet/config.json", {"addition_time_embed_dim": None}, "garbles"),
        ("text_encoder_2/config.json", {"architectures": ["CLIPTextModel"]}, "has no projection"),
        ("text_encoder_2/config.json", {"projection_dim": 64}, "projects a width of 48 to 64"),
        ("text_encoder_2/config.json", {"hidden_size": None}, "garbles"),
        ("tokenizer_2/tokenizer_config.json", {"model_max_length": 0}, "text_length"),
    ],
)
def test_configs_that_do_not_go_together_are_refused(
    changed_sdxl: Path, file: str, changes: dict[str, Any], sentence: str
) -> None:
    change(changed_sdxl, file, **changes)
    assert sentence in refusal(changed_sdxl)


def test_an_sdxl_unet_with_one_text_encoder_is_refused(changed_sdxl: Path) -> None:
    change(changed_sdxl, "model_index.json", text_encoder_2=None, tokenizer_2=None)
    change(changed_sdxl, "unet/config.json", cross_attention_dim=32)
    assert "takes 'text_time' embeddings, and nothing in the folder makes them" in refusal(changed_sdxl)


def test_a_second_tokenizer_that_can_not_be_read_is_refused(changed_sdxl: Path, torch_imported: None) -> None:
    from engine.models.load import load_tokenizer

    for file in (changed_sdxl / "tokenizer_2").iterdir():
        file.write_text("{", encoding="utf-8")
    with pytest.raises(ModelRefused, match=r"tokenizer in .*tokenizer_2 can't be read"):
        load_tokenizer(changed_sdxl, part="tokenizer_2")


def test_a_load_names_every_part_and_keeps_a_vae_in_f32_that_needs_it(tiny_sdxl: Path, stream: EagerStream) -> None:
    import torch

    from engine.models.model import load

    heard: list[tuple[str, float]] = []

    def progress(what: str, fraction: float) -> None:
        heard.append((what, fraction))

    model = asyncio.run(
        load(describe(str(tiny_sdxl)), stream, None, "cpu", torch.float16, progress, CancellationToken.none)
    )
    assert list(dict.fromkeys(what for what, _ in heard)) == ["text encoder", "text encoder 2", "unet", "vae"]
    assert heard[-1][1] == pytest.approx(1)
    assert model.dtype == torch.float16
    picture = asyncio.run(
        model.vae.decode(torch.zeros(1, 4, 8, 8, dtype=torch.float16), "eager", CancellationToken.none)
    )
    assert picture.dtype == torch.float32
    model.close()
