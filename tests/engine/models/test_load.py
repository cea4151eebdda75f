"""Modules get exactly the tensors that their files hold, or none at all."""

from __future__ import annotations

import asyncio
import gc
import json
import shutil
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import ModelRefused, OperationCancelled
from engine.models.description import describe, weight_files
from resources import STARTER_MODEL

pytestmark = pytest.mark.usefixtures("torch_imported")

PARTS = ("text_encoder", "unet", "vae")


def reference(folder: Path, part: str) -> Any:
    """The part as diffusers or transformers itself loads it, in f32."""
    import torch
    import transformers
    from diffusers import AutoencoderKL, UNet2DConditionModel

    if part == "text_encoder":
        name = json.loads((folder / part / "config.json").read_text(encoding="utf-8"))["architectures"][0]
        options = {"add_pooling_layer": False} if name == "BertModel" else {}
        cls = getattr(transformers, name)
        return cls.from_pretrained(folder / part, local_files_only=True, dtype=torch.float32, **options).eval()
    cls = UNet2DConditionModel if part == "unet" else AutoencoderKL
    return cls.from_pretrained(folder / part, local_files_only=True, torch_dtype=torch.float32).eval()


def assert_equal_tensors(ours: Any, theirs: Any) -> None:
    import torch

    mine, expected = (dict(m.named_parameters()) | dict(m.named_buffers()) for m in (ours, theirs))
    assert mine.keys() == expected.keys()
    for name, value in expected.items():
        assert mine[name].dtype == value.dtype, name
        assert torch.equal(mine[name], value), name


@pytest.mark.parametrize("part", PARTS)
def test_the_starter_is_what_diffusers_loads(part: str) -> None:
    from engine.models.load import load_module

    ours = load_module(STARTER_MODEL, part)
    assert not ours.training
    assert not any(parameter.requires_grad or parameter.is_meta for parameter in ours.parameters())
    assert_equal_tensors(ours, reference(STARTER_MODEL, part))


@pytest.mark.parametrize("part", PARTS)
def test_a_folder_of_clip_is_what_diffusers_loads(tiny_model: Path, part: str) -> None:
    from engine.models.load import load_module

    assert_equal_tensors(load_module(tiny_model, part), reference(tiny_model, part))


def test_clip_answers_as_transformers_does(tiny_model: Path) -> None:
    import torch

    from engine.models.components import Component, as_function
    from engine.models.load import load_module

    ids = torch.randint(0, 50, (1, 77), generator=torch.Generator().manual_seed(0))
    ours = as_function(Component.TEXT_ENCODER, load_module(tiny_model, "text_encoder"))
    with torch.inference_mode():
        answer, expected = ours(ids, torch.ones_like(ids)), reference(tiny_model, "text_encoder")(ids)[0]
    assert torch.allclose(answer, expected, atol=1e-6)


def test_f16_is_kept_where_it_is_asked_for(tiny_model: Path) -> None:
    import torch

    from engine.models.load import load_module

    assert {p.dtype for p in load_module(tiny_model, "unet", torch.float16).parameters()} == {torch.float16}


# Other layouts


def rewrite(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    from safetensors.torch import load_file, save_file

    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    save_file(change(tensors), path)


def old_name(name: str) -> str:
    for new, old in {"to_q": "query", "to_k": "key", "to_v": "value", "to_out.0": "proj_attn"}.items():
        name = name.replace(f"attentions.0.{new}.", f"attentions.0.{old}.")
    return name


def test_the_old_names_of_the_vae_s_attention_are_understood(changed_model: Path, tiny_model: Path) -> None:
    from safetensors import safe_open

    from engine.models.load import load_module

    weights = weight_files(changed_model, "vae")[0]
    rewrite(weights, lambda tensors: {old_name(name): tensor for name, tensor in tensors.items()})
    with safe_open(weights, framework="pt") as opened:
        assert "encoder.mid_block.attentions.0.query.weight" in opened.keys()  # noqa: SIM118
    assert_equal_tensors(load_module(changed_model, "vae"), reference(tiny_model, "vae"))


def test_a_clip_of_stable_diffusion_1_has_its_prefix_and_position_ids(changed_model: Path, tiny_model: Path) -> None:
    import torch

    from engine.models.load import load_module

    def prefixed(tensors: dict[str, Any]) -> dict[str, Any]:
        renamed = {f"text_model.{name}": tensor for name, tensor in tensors.items()}
        return renamed | {"text_model.embeddings.position_ids": torch.arange(77)[None]}

    rewrite(weight_files(changed_model, "text_encoder")[0], prefixed)
    assert_equal_tensors(load_module(changed_model, "text_encoder"), reference(tiny_model, "text_encoder"))


def test_shards_are_read_together(changed_model: Path, tiny_model: Path) -> None:
    from safetensors.torch import load_file, save_file

    from engine.models.load import load_module

    whole = weight_files(changed_model, "unet")[0]
    tensors = load_file(whole)
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2]), start=1):
        shard = whole.with_name(f"diffusion_pytorch_model-0000{number}-of-00002.safetensors")
        save_file({name: tensors[name].clone() for name in part}, shard)
    whole.unlink()
    heard: list[float] = []
    assert_equal_tensors(load_module(changed_model, "unet", progress=heard.append), reference(tiny_model, "unet"))
    assert heard == sorted(heard)
    assert heard[-1] == 1


def test_tensors_that_nobody_asked_for_are_left(changed_model: Path, tiny_model: Path) -> None:
    import torch

    from engine.models.load import load_module

    rewrite(weight_files(changed_model, "unet")[0], lambda tensors: tensors | {"ema.decay": torch.ones(3)})
    assert_equal_tensors(load_module(changed_model, "unet"), reference(tiny_model, "unet"))


# What is refused


def test_a_missing_tensor_is_named(changed_model: Path) -> None:
    from engine.models.load import load_module

    def without(tensors: dict[str, Any]) -> dict[str, Any]:
        del tensors["conv_in.weight"]
        return tensors

    rewrite(weight_files(changed_model, "unet")[0], without)
    with pytest.raises(ModelRefused, match=r"lacks 1 tensors, conv_in\.weight for one"):
        load_module(changed_model, "unet")


def test_a_tensor_of_the_wrong_shape_is_named(changed_model: Path) -> None:
    from engine.models.load import load_module

    def transposed(tensors: dict[str, Any]) -> dict[str, Any]:
        return tensors | {"conv_in.weight": tensors["conv_in.weight"].transpose(0, 1).contiguous()}

    path = weight_files(changed_model, "unet")[0]
    rewrite(path, transposed)
    with pytest.raises(ModelRefused, match=r"conv_in\.weight has the shape \(4, 32, 3, 3\)") as refused:
        load_module(changed_model, "unet")
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    ("part", "changes"),
    [
        ("unet", {"down_block_types": ["NoSuchBlock", "DownBlock2D"]}),
        ("unet", {"block_out_channels": [32, 33]}),
        ("unet", {"norm_num_groups": 0}),
        ("unet", {"attention_head_dim": 0}),
        ("vae", {"block_out_channels": ["wide", 16]}),
        ("vae", {"block_out_channels": []}),
        ("text_encoder", {"architectures": ["T5EncoderModel"]}),
        ("text_encoder", {"architectures": None}),
        ("text_encoder", {"model_type": "no-such-type"}),
        ("text_encoder", {"hidden_size": -1}),
        ("text_encoder", {"hidden_act": "no-such-activation"}),
    ],
    ids=str,
)
def test_a_config_that_describes_no_module_is_refused(changed_model: Path, part: str, changes: dict[str, Any]) -> None:
    from engine.models.load import load_module

    config = changed_model / part / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text(encoding="utf-8")) | changes), encoding="utf-8")
    with pytest.raises(ModelRefused):
        load_module(changed_model, part)


def test_headers_that_only_the_library_can_see_through_are_refused(changed_model: Path) -> None:
    from engine.models.load import load_module

    path = weight_files(changed_model, "vae")[0]
    content = path.read_bytes().replace(b'"dtype":"F32"', b'"dtype":"Q99"', 1)
    path.write_bytes(content)
    describe(str(changed_model))
    with pytest.raises(ModelRefused, match="can't be read") as refused:
        load_module(changed_model, "vae")
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("damage", ["missing", "garbled"])
def test_a_tokenizer_that_can_not_be_read_is_refused_without_asking_the_network(
    changed_model: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engine.models.load import load_tokenizer

    attempts: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _self, address: attempts.append(address))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *arguments, **_: attempts.append(arguments))
    if damage == "missing":
        shutil.rmtree(changed_model / "tokenizer")
    else:
        for file in (changed_model / "tokenizer").iterdir():
            file.write_text("{", encoding="utf-8")
    with pytest.raises(ModelRefused, match="tokenizer"):
        load_tokenizer(changed_model)
    assert attempts == []


# Progress and cancellation


@pytest.mark.parametrize("part", PARTS)
def test_progress_rises_to_one(tiny_model: Path, part: str) -> None:
    from engine.models.load import load_module

    heard: list[float] = []
    load_module(tiny_model, part, progress=heard.append)
    assert heard == sorted(heard)
    assert heard[0] > 0
    assert heard[-1] == 1


@pytest.mark.parametrize("text", ["a Red apple, naïve 3d style 漢字 🍎", "", "word " * 400, "[CLS] x [SEP] \n\tÅ"])
def test_the_starters_tokenizer_is_the_one_that_transformers_loads(text: str) -> None:
    from transformers import AutoTokenizer

    from engine.models.load import load_tokenizer

    ours, theirs = load_tokenizer(STARTER_MODEL), AutoTokenizer.from_pretrained(STARTER_MODEL / "tokenizer")
    for special in (True, False):
        options = {"add_special_tokens": special, "verbose": False}
        assert ours(text, **options)["input_ids"] == theirs(text, **options)["input_ids"]
    names = ("cls", "sep", "pad", "bos", "eos", "unk")
    assert all(getattr(ours, f"{name}_token_id") == getattr(theirs, f"{name}_token_id") for name in names)


def test_a_cancel_lands_inside_the_loading_of_a_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    import tokenizers

    from engine.models.load import load_tokenizer

    token, read = CancellationToken(), tokenizers.Tokenizer.from_file

    class Watched:
        @staticmethod
        def from_file(path: str) -> Any:
            token.cancel()
            return read(path)

    monkeypatch.setattr(tokenizers, "Tokenizer", Watched)
    with pytest.raises(OperationCancelled):
        load_tokenizer(STARTER_MODEL, token)


def test_a_token_cancelled_beforehand_stops_before_anything_is_read(tmp_path: Path) -> None:
    from engine.models.load import load_module

    token = CancellationToken()
    token.cancel()
    with pytest.raises(OperationCancelled):
        load_module(tmp_path / "nowhere", "unet", token=token)


def test_cancelling_stops_at_the_next_tensor(tiny_model: Path) -> None:
    from engine.models.load import load_module

    token, heard = CancellationToken(), []

    def progress(fraction: float) -> None:
        heard.append(fraction)
        if len(heard) == 5:
            token.cancel()

    with pytest.raises(OperationCancelled):
        load_module(tiny_model, "unet", progress=progress, token=token)
    assert len(heard) == 5


async def load_whole(
    folder: Path, stream: Any, token: CancellationToken, progress: Callable[[str, float], None]
) -> Any:
    import torch

    from engine.models.model import load

    return await load(describe(str(folder)), stream, None, "cpu", torch.float32, progress, token)


async def test_a_whole_model_says_which_part_it_loads(tiny_model: Path, stream: Any) -> None:
    heard: list[tuple[str, float]] = []
    token = CancellationToken()
    model = await load_whole(tiny_model, stream, token, lambda what, fraction: heard.append((what, fraction)))
    fractions = [fraction for _, fraction in heard]
    assert list(dict.fromkeys(what for what, _ in heard)) == ["text encoder", "unet", "vae"]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1)
    model.close()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[weakref.ref[Any]]:
    """Weak references to every module that loading builds."""
    from engine.models import load

    references: list[weakref.ref[Any]] = []
    build = load._build

    def remember(folder: Path, part: str, config: dict[str, Any]) -> Any:
        module = build(folder, part, config)
        references.extend(weakref.ref(inner) for inner in module.modules())
        return module

    monkeypatch.setattr(load, "_build", remember)
    return references


async def left_of(built: list[weakref.ref[Any]], stream: Any) -> list[Any]:
    """What is still in memory, though the collector is told never to look at what was there before."""
    stream.submit(lambda: None, CancellationToken.none).result()  # the stream's thread has let go of its last call
    await asyncio.sleep(0)  # and so has the loop's own last step
    gc.collect()
    return [type(module()) for module in built if module() is not None]


@pytest.mark.parametrize("part", ["text encoder", "unet", "vae"])
async def test_a_cancelled_load_leaves_nothing(
    tiny_model: Path, stream: Any, built: list[weakref.ref[Any]], part: str
) -> None:
    token = CancellationToken()

    def progress(what: str, fraction: float) -> None:
        if what == part and fraction > 0.1:
            token.cancel("Enough.")

    with pytest.raises(OperationCancelled, match="Enough"):
        await load_whole(tiny_model, stream, token, progress)
    assert built != []
    assert await left_of(built, stream) == []


async def test_a_closed_model_gives_all_its_memory_back(
    tiny_model: Path, stream: Any, built: list[weakref.ref[Any]]
) -> None:
    first = await load_whole(tiny_model, stream, CancellationToken.none, lambda what, fraction: None)
    of_first = list(built)
    second = await load_whole(tiny_model, stream, CancellationToken.none, lambda what, fraction: None)
    first.close()
    del first
    assert await left_of(of_first, stream) == []
    assert await left_of(built, stream) != []
    second.close()
    del second
    assert await left_of(built, stream) == []
