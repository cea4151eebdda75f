"""Every layout that people have is read as the pairs that were written, and everything else is refused by name."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import ModelRefused, OperationCancelled
from tests.engine.lora import written
from tests.engine.lora.written import Pairs, random_pairs, save

ATTENTION = ("to_q", "to_k", "to_v", "to_out.0")


@pytest.fixture(scope="module")
def unet_pairs(unet: Any) -> Pairs:
    from engine.lora.layout import all_layers

    return random_pairs(unet, all_layers(unet), 4)


@pytest.fixture(scope="module")
def attention_pairs(unet_pairs: Pairs) -> Pairs:
    return {layer: pair for layer, pair in unet_pairs.items() if layer.endswith(ATTENTION)}


@pytest.fixture(scope="module")
def text_pairs(text_encoder: Any) -> Pairs:
    from engine.lora.layout import attention_layers

    return random_pairs(text_encoder, attention_layers(text_encoder), 3, seed=1)


def fitted(path: Path, modules: dict[str, Any]) -> Any:
    from engine.lora.match import match
    from engine.lora.read import read_lora

    return match(read_lora(path), modules, "tiny")


def same(found: Any, pairs: Pairs, with_alpha: bool = True) -> bool:
    import torch

    return found.keys() == pairs.keys() and all(
        torch.equal(found[layer].down, down)
        and torch.equal(found[layer].up, up)
        and found[layer].scale == pytest.approx(alpha / down.shape[0] if with_alpha else 1)
        for layer, (down, up, alpha) in pairs.items()
    )


def test_kohya(tmp_path: Path, modules: dict[str, Any], unet_pairs: Pairs, text_pairs: Pairs) -> None:
    metadata = {"ss_tag_frequency": '{"a": {"safelight": 3}}'}
    path = save(tmp_path / "red lamp.safetensors", written.kohya(unet_pairs, text_pairs), metadata)
    lora = fitted(path, modules)
    assert same(lora.unet, unet_pairs)
    assert same(lora.text_encoder, text_pairs)
    assert (lora.name, lora.path, lora.metadata) == ("red lamp", path, metadata)


@pytest.mark.parametrize("projections", [("q_proj",), ("fc1",), ("out_proj", "fc2")])
def test_a_text_encoder_whose_lora_has_only_some_projections(
    tmp_path: Path, modules: dict[str, Any], text_pairs: Pairs, projections: tuple[str, ...]
) -> None:
    some = {layer: pair for layer, pair in text_pairs.items() if layer.endswith(projections)}
    for number, tensors in enumerate((written.kohya({}, some), written.peft({}, some))):
        path = save(tmp_path / f"{number}.safetensors", tensors, written.peft_metadata({}, some) if number else None)
        lora = fitted(path, modules)
        assert same(lora.text_encoder, some)
        assert lora.unet == {}


def test_locon_with_a_mid_is_the_low_rank_pair_that_it_amounts_to(
    tmp_path: Path, modules: dict[str, Any], unet_pairs: Pairs
) -> None:
    tensors, amounts = written.locon_tucker(unet_pairs)
    assert any(key.endswith("lora_mid.weight") for key in tensors)
    assert same(fitted(save(tmp_path / "a.safetensors", tensors), modules).unet, amounts)


def test_diffusers_before_peft(tmp_path: Path, modules: dict[str, Any], unet_pairs: Pairs, text_pairs: Pairs) -> None:
    lora = fitted(save(tmp_path / "a.safetensors", written.diffusers(unet_pairs, text_pairs)), modules)
    assert same(lora.unet, unet_pairs, with_alpha=False)
    assert same(lora.text_encoder, text_pairs, with_alpha=False)


@pytest.mark.parametrize("prefix", ["", "unet."])
def test_the_first_layout_of_diffusers(
    tmp_path: Path, modules: dict[str, Any], attention_pairs: Pairs, prefix: str
) -> None:
    path = save(tmp_path / "a.safetensors", written.diffusers_old(attention_pairs, prefix))
    assert same(fitted(path, modules).unet, attention_pairs, with_alpha=False)


@pytest.mark.parametrize("alphas", [True, False])
def test_peft_with_alphas_in_the_metadata_and_without(
    tmp_path: Path, modules: dict[str, Any], unet_pairs: Pairs, text_pairs: Pairs, alphas: bool
) -> None:
    metadata = written.peft_metadata(unet_pairs, text_pairs) if alphas else None
    lora = fitted(save(tmp_path / "a.safetensors", written.peft(unet_pairs, text_pairs), metadata), modules)
    assert same(lora.unet, unet_pairs, alphas)
    assert same(lora.text_encoder, text_pairs, alphas)


def test_a_file_of_peft_itself_needs_the_config_beside_it(
    tmp_path: Path, modules: dict[str, Any], attention_pairs: Pairs
) -> None:
    tensors = {f"base_model.model.{key.removeprefix('unet.')}": x for key, x in written.peft(attention_pairs).items()}
    path = save(tmp_path / "adapter_model.safetensors", tensors)
    with pytest.raises(ModelRefused, match=r"adapter_config\.json"):
        fitted(path, modules)
    config = {"r": 4, "lora_alpha": 8, "use_rslora": True}
    (tmp_path / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    lora = fitted(path, modules)
    assert lora.unet.keys() == attention_pairs.keys()
    assert {pair.scale for pair in lora.unet.values()} == {4.0}


def test_half_precision_is_read_as_single(tmp_path: Path, modules: dict[str, Any], attention_pairs: Pairs) -> None:
    import torch

    tensors = {key: tensor.half() for key, tensor in written.kohya(attention_pairs).items()}
    lora = fitted(save(tmp_path / "a.safetensors", tensors), modules)
    assert {x.dtype for pair in lora.unet.values() for x in (pair.down, pair.up)} == {torch.float32}


def test_original_block_names_become_those_of_diffusers(tmp_path: Path, torch_imported: None) -> None:
    """SD 1.x, whose twelve blocks on each side have two-digit numbers."""
    import torch

    from engine.lora.read import read_lora

    expected: dict[str, float] = {}
    tensors: dict[str, Any] = {}

    def put(name: str, layer: str) -> None:
        number = float(len(expected) + 1)
        expected[layer] = number
        tensors[f"lora_unet_{name}.lora_down.weight"] = torch.full((1, 2), number)
        tensors[f"lora_unet_{name}.lora_up.weight"] = torch.ones(2, 1)

    for block in range(4):
        for number in range(2):
            put(f"input_blocks_{3 * block + number + 1}_0_in_layers_2", f"down_blocks.{block}.resnets.{number}.conv1")
        for number in range(3):
            put(f"output_blocks_{3 * block + number}_0_out_layers_3", f"up_blocks.{block}.resnets.{number}.conv2")
    for block in range(3):
        put(f"input_blocks_{3 * block + 3}_0_op", f"down_blocks.{block}.downsamplers.0.conv")
        for number in range(2):
            inner = "transformer_blocks.0.attn1.to_q"
            place = f"input_blocks_{3 * block + number + 1}_1"
            put(f"{place}_{inner.replace('.', '_')}", f"down_blocks.{block}.attentions.{number}.{inner}")
    for block in range(1, 4):
        for number in range(3):
            put(f"output_blocks_{3 * block + number}_1_proj_in", f"up_blocks.{block}.attentions.{number}.proj_in")
    put("middle_block_1_proj_out", "mid_block.attentions.0.proj_out")
    put("middle_block_2_emb_layers_1", "mid_block.resnets.1.time_emb_proj")
    lora = read_lora(save(tmp_path / "a.safetensors", tensors))
    assert {layer: pair.down[0, 0].item() for layer, pair in lora.unet.items()} == expected


def test_a_file_does_what_diffusers_makes_of_it(tmp_path: Path, unet: Any, unet_pairs: Pairs) -> None:
    """The libraries' own loader, from the same file, into the same UNet."""
    import copy

    import torch
    from diffusers.loaders import StableDiffusionLoraLoaderMixin

    from engine.lora.adapted import AdaptedModule
    from engine.lora.read import read_lora
    from engine.lora.stack import LoraStack
    from engine.models.components import Component, as_function, example_inputs

    pairs = {layer: (down, up, 2.0) for layer, (down, up, _) in unet_pairs.items()}
    path = save(tmp_path / "a.safetensors", written.kohya(pairs))
    theirs = copy.deepcopy(unet)
    tensors, alphas = StableDiffusionLoraLoaderMixin.lora_state_dict(str(path))
    StableDiffusionLoraLoaderMixin.load_lora_into_unet(tensors, alphas, theirs)
    stack = LoraStack([(read_lora(path), 1.0)])
    layout = stack.layout_for("unet", unet)
    assert layout is not None
    latents, timestep, prompt = example_inputs(Component.UNET, unet)
    inputs = torch.randn_like(latents), timestep, torch.randn_like(prompt)
    ours = AdaptedModule(as_function(Component.UNET, unet), layout.layers)
    with torch.no_grad():
        answer = ours(*inputs, *stack.adapter_tensors("unet", unet, layout))
        expected = as_function(Component.UNET, theirs)(*inputs)
    assert ((answer - expected).abs().max() / expected.abs().max()).item() <= 1e-4


def test_the_starters_layers_have_names_that_every_layout_can_say(tmp_path: Path, torch_imported: None) -> None:
    from engine.lora.layout import all_layers, attention_layers
    from engine.models.load import load_module
    from resources import STARTER_MODEL

    modules = {part: load_module(STARTER_MODEL, part) for part in ("unet", "text_encoder")}
    unet = random_pairs(modules["unet"], all_layers(modules["unet"]), 1)
    text = random_pairs(modules["text_encoder"], attention_layers(modules["text_encoder"]), 1)
    assert text
    lora = fitted(save(tmp_path / "a.safetensors", written.kohya(unet, text, "lora_te_")), modules)
    assert same(lora.unet, unet)
    assert same(lora.text_encoder, text)


# Refused


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("DoRA", "lora_unet_conv_in.dora_scale"),
        ("LoHa", "lora_unet_conv_in.hada_w1_a"),
        ("LoKr", "lora_unet_conv_in.lokr_w1"),
        ("GLoRA", "lora_unet_conv_in.a1.weight"),
        ("whole-weight", "lora_unet_conv_in.diff"),
        ("bias", "unet.conv_in.lora_B.bias"),
        ("DoRA", "unet.conv_in.lora_magnitude_vector"),
    ],
)
def test_other_adapters_are_refused_by_their_kind(tmp_path: Path, attention_pairs: Pairs, kind: str, name: str) -> None:
    import torch

    from engine.lora.read import read_lora

    path = save(tmp_path / "a.safetensors", written.kohya(attention_pairs) | {name: torch.ones(3)})
    with pytest.raises(ModelRefused, match=rf"a\.safetensors holds {kind} layers"):
        read_lora(path)


Damage = Callable[[dict[str, Any], str], None]


def _without_up(tensors: dict[str, Any], name: str) -> None:
    del tensors[f"{name}.lora_up.weight"]


def _without_down(tensors: dict[str, Any], name: str) -> None:
    del tensors[f"{name}.lora_down.weight"]


def _two_ranks(tensors: dict[str, Any], name: str) -> None:
    tensors[f"{name}.lora_down.weight"] = tensors[f"{name}.lora_down.weight"][:-1]


def _not_a_number(tensors: dict[str, Any], name: str) -> None:
    tensors[f"{name}.lora_up.weight"] = tensors[f"{name}.lora_up.weight"] / 0


def _two_alphas(tensors: dict[str, Any], name: str) -> None:
    import torch

    tensors[f"{name}.alpha"] = torch.ones(2)


def _foreign_mid(tensors: dict[str, Any], name: str) -> None:
    import torch

    tensors[f"{name}.lora_mid.weight"] = torch.ones(2, 2, 3, 3)


def _unheard_of(tensors: dict[str, Any], name: str) -> None:
    tensors[f"{name}.lora_sideways.weight"] = tensors[f"{name}.lora_up.weight"].clone()


@pytest.mark.parametrize(
    "damage", [_without_up, _without_down, _two_ranks, _not_a_number, _two_alphas, _foreign_mid, _unheard_of]
)
def test_pairs_that_are_not_whole_are_refused(tmp_path: Path, attention_pairs: Pairs, damage: Damage) -> None:
    from engine.lora.read import read_lora

    tensors = written.kohya(attention_pairs)
    damage(tensors, next(iter(tensors)).partition(".")[0])
    with pytest.raises(ModelRefused, match=r"a\.safetensors"):
        read_lora(save(tmp_path / "a.safetensors", tensors))


def test_half_a_pair_in_pefts_layout_is_refused(tmp_path: Path, attention_pairs: Pairs) -> None:
    from engine.lora.read import read_lora

    tensors = written.peft(attention_pairs)
    tensors.popitem()
    with pytest.raises(ModelRefused, match="incomplete"):
        read_lora(save(tmp_path / "a.safetensors", tensors))


def test_a_file_without_pairs_is_refused(tmp_path: Path, torch_imported: None) -> None:
    import torch

    from engine.lora.read import read_lora

    with pytest.raises(ModelRefused, match="holds no LoRA: none of its 1 tensors"):
        read_lora(save(tmp_path / "a.safetensors", {"conv_in.weight": torch.ones(2, 2)}))


def test_a_truncated_file_is_refused(tmp_path: Path, attention_pairs: Pairs) -> None:
    from engine.lora.read import read_lora

    path = save(tmp_path / "a.safetensors", written.kohya(attention_pairs))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ModelRefused, match=r"a\.safetensors is truncated"):
        read_lora(path)


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_pickle_is_refused_unopened(tmp_path: Path, torch_imported: None, name: str, monkeypatch: Any) -> None:
    from engine.lora.read import read_lora

    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(ModelRefused, match="pickle, which could run code"):
        read_lora(path)
    assert not (tmp_path / "exploded").exists()


def test_a_missing_file_is_refused(tmp_path: Path, torch_imported: None) -> None:
    from engine.lora.read import read_lora

    with pytest.raises(ModelRefused, match=r"gone\.safetensors can't be read"):
        read_lora(tmp_path / "gone.safetensors")


@pytest.mark.parametrize(
    "config",
    ["[1]", "{", '{"unet.lora_alpha": "many"}', '{"unet.alpha_pattern": {"(a+)+b": 1}}', '{"unet.use_dora": true}'],
)
def test_garbled_metadata_is_refused(tmp_path: Path, attention_pairs: Pairs, config: str) -> None:
    from engine.lora.read import read_lora

    metadata = {"lora_adapter_metadata": config}
    with pytest.raises(ModelRefused, match=r"a\.safetensors (has|holds)"):
        read_lora(save(tmp_path / "a.safetensors", written.peft(attention_pairs), metadata))


def test_reading_can_be_cancelled(tmp_path: Path, attention_pairs: Pairs) -> None:
    from engine.lora.read import read_lora

    token = CancellationToken()
    token.cancel("Enough.")
    with pytest.raises(OperationCancelled, match="Enough"):
        read_lora(save(tmp_path / "a.safetensors", written.kohya(attention_pairs)), token)


def test_tensors_beside_the_pairs_are_named_in_one_line(
    tmp_path: Path, attention_pairs: Pairs, caplog: pytest.LogCaptureFixture
) -> None:
    import torch

    from engine.lora.read import read_lora

    caplog.set_level("INFO", "engine.lora")
    extra = {f"bundle_emb.word{n}.clip": torch.ones(2) for n in range(3)}
    lora = read_lora(save(tmp_path / "a.safetensors", written.kohya(attention_pairs) | extra))
    assert lora.unet.keys() == attention_pairs.keys()
    assert [r.getMessage() for r in caplog.records if r.name.startswith("engine")] == [
        f"{lora.path}: 3 tensors belong to no layer and are left out, bundle_emb.word0.clip for one"
    ]
