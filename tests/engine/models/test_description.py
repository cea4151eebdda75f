"""A model folder is described from its JSON and its headers alone, and what isn't one is refused by name."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.errors import ModelRefused, RequestRefused
from engine.models.description import ModelDescription, check_header, describe, weight_files
from engine.models.latent_rgb import LatentRgb
from engine.request import GenerationRequest, Sampler
from resources import STARTER_MODEL
from tests.engine.tiny_model import SIZE_MULTIPLE

ROOT = Path(__file__).resolve().parents[3]


def test_the_starter_is_described_without_torch() -> None:
    program = """
import sys
from engine.models.description import describe
starter = describe("starter")
starter.check(starter.defaults)
print(starter.name, starter.prediction, starter.size_multiple, starter.text_length, starter.defaults.model)
loaded = {"torch", "numpy", "diffusers", "transformers", "safetensors", "openvino"} & set(sys.modules)
assert not loaded, loaded
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["Starter", "v_prediction", "32", "32", "starter"]


def test_a_folder_of_diffusers_is_described(tiny_model: Path) -> None:
    model = describe(str(tiny_model))
    assert (model.name, model.folder, model.family) == ("tiny", tiny_model, "sd1")
    assert (model.prediction, model.size_multiple, model.text_length) == ("epsilon", SIZE_MULTIPLE, 77)
    assert (model.defaults.width, model.defaults.height, model.defaults.model) == (64, 64, str(tiny_model))
    model.check(model.defaults)
    assert ModelDescription.model_validate_json(model.model_dump_json()) == model


def test_what_lies_beside_the_model_is_its_defaults(changed_model: Path) -> None:
    rows = [[0.1, 0.2, 0.3]] * 4
    beside = {"name": "Tiny", "steps": 7, "sampler": "LCM", "guidance_scale": 1.5, "latent_rgb": {"factors": rows}}
    write(changed_model, "safelight.json", beside)
    model = describe(str(changed_model))
    assert (model.name, model.defaults.steps, model.defaults.sampler) == ("Tiny", 7, Sampler.LCM)
    assert model.latent_rgb == LatentRgb(factors=((0.1, 0.2, 0.3),) * 4)


# Sizes and samplers


@pytest.mark.parametrize(("asked", "nearest"), [(127, 128), (143, 128), (144, 160), (33, 32), (500, 512), (4096, 512)])
def test_a_size_that_the_model_can_not_make_is_refused_with_the_nearest(asked: int, nearest: int) -> None:
    starter = describe("starter")
    with pytest.raises(RequestRefused, match=rf"The nearest size is 64×{nearest}\."):
        starter.check(GenerationRequest(width=64, height=asked))
    with pytest.raises(RequestRefused, match=rf"The nearest size is {nearest}×96\."):
        starter.check(GenerationRequest(width=asked, height=96))


@given(side=st.integers(32, 4096))
def test_the_nearest_side_can_be_made_and_none_is_nearer(side: int) -> None:
    starter = describe("starter")
    nearest = starter.nearest_side(side)
    starter.check(GenerationRequest(width=nearest, height=nearest))
    assert starter.nearest_side(nearest) == nearest
    makeable = range(starter.size_multiple, starter.max_side + 1, starter.size_multiple)
    assert abs(nearest - side) == min(abs(other - side) for other in makeable)


def flow_model(folder: Path) -> ModelDescription:
    write(folder, "scheduler/scheduler_config.json", {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0})
    return describe(str(folder))


def test_a_flow_model_says_which_samplers_it_can_not_use(changed_model: Path) -> None:
    model = flow_model(changed_model)
    usable = {sampler for sampler in Sampler if model.why_unusable(sampler) is None}
    assert model.prediction == "flow_prediction"
    assert usable == {Sampler.EULER, Sampler.HEUN, Sampler.UNIPC, Sampler.DPMPP_2M}
    assert "Euler, Heun, UniPC and DPM++ 2M" in str(model.why_unusable(Sampler.LCM))
    assert model.defaults.sampler in usable
    with pytest.raises(RequestRefused, match="LCM has no form for flow-matching"):
        model.check(GenerationRequest(width=64, height=64, sampler=Sampler.LCM))


def test_other_models_can_use_every_sampler() -> None:
    assert all(describe("starter").why_unusable(sampler) is None for sampler in Sampler)


# What isn't a model


def write(folder: Path, name: str, content: Any) -> None:
    (folder / name).write_text(json.dumps(content), encoding="utf-8")


def change(folder: Path, name: str, **changes: Any) -> None:
    write(folder, name, json.loads((folder / name).read_text(encoding="utf-8")) | changes)


def refusal(folder: Path | str) -> str:
    with pytest.raises(ModelRefused) as refused:
        describe(str(folder))
    return str(refused.value)


@pytest.mark.parametrize("name", ["nowhere/at/all", "x" * 5000, "nul\0byte", "~no-such-user-here/model", "Starter "])
def test_what_does_not_exist_is_refused(name: str) -> None:
    assert "starter" in refusal(name)


def test_a_file_is_refused() -> None:
    assert "is a file; Safelight loads diffusers folders" in refusal(STARTER_MODEL / "model_index.json")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    assert "model_index.json is missing" in refusal(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe{}",
        b"[" * 1_000_000,
        b'{"a":' * 100_000,
        b'{"a": ' + b"9" * 10_000 + b"}",
    ],
    ids=["empty", "cut", "list", "null", "bytes", "deep list", "deep object", "long number"],
)
@pytest.mark.parametrize("name", ["model_index.json", "unet/config.json", "safelight.json"])
def test_broken_json_is_refused_by_name(changed_model: Path, name: str, content: bytes) -> None:
    (changed_model / name).write_bytes(content)
    assert str(changed_model / name) in refusal(changed_model)


def test_an_absurdly_large_config_is_refused(changed_model: Path) -> None:
    with (changed_model / "vae" / "config.json").open("ab") as file:
        file.truncate(11_000_000)
    assert "too large" in refusal(changed_model)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes in folders are POSIX's")
def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(changed_model: Path) -> None:
    weights = changed_model / "vae" / "diffusion_pytorch_model.safetensors"
    for path in (weights, changed_model / "model_index.json"):
        path.unlink()
        os.mkfifo(path)
        assert f"{path} isn't a file" in refusal(changed_model)


@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder", "scheduler", "tokenizer"])
def test_a_missing_part_is_named(changed_model: Path, part: str) -> None:
    change(changed_model, "model_index.json", **{part: None})
    assert f"it has no {part}" in refusal(changed_model)


@pytest.mark.parametrize(
    ("file", "changes", "sentence"),
    [
        (
            "model_index.json",
            {"text_encoder_2": ["transformers", "CLIPTextModelWithProjection"]},
            "XL model folder: it has no tokenizer_2",
        ),
        ("unet/config.json", {"_class_name": "SD3Transformer2DModel"}, "holds a SD3Transformer2DModel"),
        ("vae/config.json", {"_class_name": "AutoencoderDC"}, "holds a AutoencoderDC"),
        ("scheduler/scheduler_config.json", {"prediction_type": "sample"}, "predicts 'sample'"),
        ("unet/config.json", {"in_channels": 9}, "9 channels in and 4 out .* inpainting"),
        ("unet/config.json", {"sample_size": None}, "garbles"),
        ("unet/config.json", {"sample_size": [64, 64]}, "garbles"),
        ("unet/config.json", {"sample_size": float("inf")}, "garbles"),
        ("unet/config.json", {"sample_size": -1}, "garbles"),
        ("unet/config.json", {"block_out_channels": 320}, "garbles"),
        ("unet/config.json", {"cross_attention_dim": 768}, "don't belong together"),
        ("vae/config.json", {"block_out_channels": []}, "garbles"),
        ("vae/config.json", {"latent_channels": 16}, "latents of 16"),
        ("text_encoder/config.json", {"max_position_embeddings": 2}, "text_length"),
        ("tokenizer/tokenizer_config.json", {"model_max_length": "long"}, "garbles"),
        ("tokenizer/tokenizer_config.json", {"model_max_length": 0}, "text_length"),
    ],
)
def test_a_config_of_something_else_is_refused(
    changed_model: Path, file: str, changes: dict[str, Any], sentence: str
) -> None:
    change(changed_model, file, **changes)
    with pytest.raises(ModelRefused, match=sentence):
        describe(str(changed_model))


@pytest.mark.parametrize(
    "beside",
    [
        {"steps": "many"},
        {"steps": 1000},
        {"sampler": "none"},
        {"width": 10},
        {"latent_rgb": {"factors": [[1, 2]]}},
        {"latent_rgb": {"factors": [[1, 2, 3]] * 3}},
        {"examples": [1]},
    ],
)
def test_garbled_settings_beside_the_model_are_refused(changed_model: Path, beside: dict[str, Any]) -> None:
    write(changed_model, "safelight.json", beside)
    refusal(changed_model)


# Weights


def weights_of(folder: Path, part: str = "unet") -> Path:
    return weight_files(folder, part)[0]


def test_a_pickle_is_refused_by_name_and_never_opened(changed_model: Path) -> None:
    weights = weights_of(changed_model)
    pickled = weights.with_suffix(".bin")
    weights.unlink()
    pickled.write_bytes(b"cos\nsystem\n(S'touch opened'\ntR.")
    assert refusal(changed_model).startswith(f"{pickled} is a pickle, which could run code")
    assert not Path("opened").exists()


def test_a_pickle_beside_safetensors_is_ignored(changed_model: Path) -> None:
    weights_of(changed_model).with_suffix(".bin").write_bytes(b"anything")
    describe(str(changed_model))


def test_no_weights_at_all_are_refused(changed_model: Path) -> None:
    weights_of(changed_model, "vae").unlink()
    assert f"{changed_model / 'vae'} holds no weights" in refusal(changed_model)


@pytest.mark.parametrize(
    ("names", "taken"),
    [
        (["m.fp16", "m", "m.non_ema"], ["m"]),
        (["m.fp16"], ["m.fp16"]),
        (["m-00002-of-00002", "m-00001-of-00002", "m.fp16-00001-of-00002"], ["m-00001-of-00002", "m-00002-of-00002"]),
        (["._m", "m"], ["m"]),
    ],
    ids=["variants", "variant alone", "shards", "a Mac's shadow file"],
)
def test_the_plain_weights_are_taken(tmp_path: Path, names: list[str], taken: list[str]) -> None:
    (tmp_path / "unet").mkdir()
    for name in names:
        (tmp_path / "unet" / f"{name}.safetensors").touch()
    assert [file.stem for file in weight_files(tmp_path, "unet")] == taken


def safetensors(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def tensor(start: Any, end: Any) -> bytes:
    return json.dumps({"t": {"dtype": "F32", "shape": [2], "data_offsets": [start, end]}}).encode()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "truncated"),
        (b"\x10\0\0", "truncated"),
        (safetensors(b"", length=0), "header can't be right"),
        (safetensors(b"{}", length=2**63), "header can't be right"),
        (safetensors(b"{}", length=2**64 - 1), "header can't be right"),
        (safetensors(b"{}", length=3), "header can't be right"),
        (safetensors(b"{}", length=99_999_999), "header can't be right"),
        (safetensors(b"{}", b"extra"), "padded"),
        (safetensors(tensor(0, 8), bytes(7)), r"promises \d+ bytes"),
        (safetensors(tensor(0, 8), bytes(9)), r"promises \d+ bytes"),
        (safetensors(tensor(0, 10**30), bytes(8)), "promises"),
        (safetensors(tensor(0, float("inf")), bytes(8)), "garbled"),
        (safetensors(tensor(0, float("nan")), bytes(8)), "garbled"),
        (safetensors(tensor(0, None), bytes(8)), "garbled"),
        (safetensors(tensor(0, [8]), bytes(8)), "garbled"),
        (safetensors(b"[]"), "garbled"),
        (safetensors(b"nonsense"), "garbled"),
        (safetensors(b"\xff" * 16), "garbled"),
        (safetensors(b'{"t": 3}'), "garbled"),
        (safetensors(b'{"t": {}}'), "garbled"),
        (safetensors(b'{"t": {"data_offsets": []}}'), "garbled"),
        (safetensors(b'{"t": {"data_offsets": {"1": 2}}}'), "garbled"),
        (safetensors(b"[" * 200_000), "garbled"),
        (safetensors(b'{"a":' * 100_000), "garbled"),
        (b"PK\x03\x04" + bytes(200), "header can't be right"),
        (b"\x80\x02}q\x00." + bytes(200), "header can't be right"),
    ],
)
def test_a_file_that_lies_about_its_header_is_refused(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    with pytest.raises(ModelRefused, match=sentence) as refused:
        check_header(path)
    assert str(path) in str(refused.value)


@given(content=st.binary(max_size=64) | st.binary(max_size=64).map(safetensors))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_bytes_a_file_is_refused_or_whole(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    try:
        check_header(path)
    except ModelRefused:
        return
    assert json.loads(content[8 : 8 + struct.unpack("<Q", content[:8])[0]]) is not None


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def pad(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


@pytest.mark.parametrize("damage", [cut, pad])
@pytest.mark.parametrize("part", ["unet", "vae", "text_encoder"])
def test_truncated_or_padded_weights_are_refused_by_name(
    changed_model: Path, part: str, damage: Callable[[Path], None]
) -> None:
    path = weights_of(changed_model, part)
    damage(path)
    assert refusal(changed_model).startswith(f"{path} is truncated or padded")
