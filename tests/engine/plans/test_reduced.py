"""Plans with reduced weights: right in every size, small on disk and in memory, kept apart from the others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from engine.cancellation import CancellationToken
from engine.models import narrow
from engine.plans.builder import PlanBuilder, PlanSource
from engine.plans.converter import convert
from engine.plans.openvino import OpenVinoPlan
from engine.plans.plan import OPENVINO_STATIC, Signature
from engine.plans.reduced import quantised
from engine.request import Weights
from tests.engine.tiny_model import CONTEXT, WIDTH

pytestmark = pytest.mark.usefixtures("torch_imported")

REDUCED = (Weights.HALF, Weights.INT8)
COMPONENTS = ("noise predictor", "text encoder")


def inputs_of(component: str, batch: int = 2, side: int = 12) -> tuple[Any, ...]:
    import torch

    draw = torch.Generator().manual_seed(1)
    if component == "text encoder":
        return torch.randint(0, 50, (batch, CONTEXT), generator=draw), torch.ones(batch, CONTEXT, dtype=torch.int64)
    latents = torch.randn(batch, 4, side, side + 4, generator=draw)
    return latents, torch.tensor(601.0), torch.randn(batch, CONTEXT, WIDTH, generator=draw)


def eager_answer(folder: Path, component: str, inputs: tuple[Any, ...]) -> Any:
    import torch

    from engine.models.components import Component, as_function
    from engine.models.load import load_module

    part = Component(component)
    with torch.inference_mode():
        return as_function(part, load_module(folder, part.folder))(*inputs)


@pytest.fixture(scope="module")
def converted(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, Weights], Path]:
    """Each component with each kind of weights; nearly all of the tiny model's are made to count as large."""
    folder, files = tmp_path_factory.mktemp("reduced"), {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(narrow, "_LEAST_ELEMENTS", 1024)
        for component in COMPONENTS:
            for weights in Weights:
                path = files[component, weights] = folder / f"{component}-{weights}.xml"
                convert(tiny_model, component, path, (), weights)
    return files


@pytest.mark.parametrize("weights", REDUCED)
@pytest.mark.parametrize("component", COMPONENTS)
@pytest.mark.parametrize("opened", [False, True], ids=["static", "dynamic"])
def test_answers_are_near_those_of_full_weights_in_every_size(
    tiny_model: Path, converted: dict[tuple[str, Weights], Path], component: str, weights: Weights, opened: bool
) -> None:
    sizes = [inputs_of(component)] + ([inputs_of(component, 1, 20)] if opened else [])
    signature = Signature.of(sizes[0])
    plan = OpenVinoPlan(converted[component, weights], signature.opened if opened else signature)
    for inputs in [*sizes, sizes[0]]:
        expected, answer = eager_answer(tiny_model, component, inputs), plan.execute(inputs)
        apart = float((answer - expected).abs().max() / expected.abs().max())
        assert apart <= (2e-3 if weights is Weights.HALF else 0.05)
        assert apart > 0  # the weights are others
    plan.close()


@pytest.mark.parametrize("component", COMPONENTS)
def test_what_is_on_disk_shrinks(converted: dict[tuple[str, Weights], Path], component: str) -> None:
    full, half, int8 = (converted[component, w].with_suffix(".bin").stat().st_size for w in Weights)
    assert half < 0.65 * full
    assert int8 < 0.65 * half + 20_000  # scales, norms and biases are f32


def test_no_convolution_with_large_weights_is_left(converted: dict[tuple[str, Weights], Path]) -> None:
    from engine.plans.openvino_runtime import import_openvino

    model = import_openvino().Core().read_model(converted["noise predictor", Weights.INT8])
    sizes = [
        np.prod(node.input(1).get_shape()) for node in model.get_ordered_ops() if node.get_type_name() == "Convolution"
    ]
    assert all(size < 2048 for size in sizes)


def test_int8_is_off_by_half_a_scale_at_most() -> None:
    matrix = np.random.default_rng(0).standard_normal((7, 90)).astype(np.float16)
    matrix[3] = 0
    matrix[4] *= 1000
    small, scales = quantised(matrix)
    assert (small.dtype, scales.dtype, scales.shape) == (np.int8, np.float32, (7, 1))
    assert (np.abs(small * scales - matrix.astype(np.float32)) <= 0.501 * scales).all()
    assert np.abs(small[[0, 1, 2, 4, 5, 6]]).max(axis=1).tolist() == [127] * 6
    assert not small[3].any()


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[PlanBuilder]:
    builder = PlanBuilder(tmp_path / "plans")
    yield builder
    builder.close()


def test_each_kind_of_weights_has_its_own_place_in_the_store(builder: PlanBuilder, tiny_model: Path) -> None:
    never = CancellationToken.none
    keys = {builder._key(PlanSource(tiny_model, "text encoder", "text_encoder", (), w), never) for w in Weights}
    assert len(keys) == len(Weights)


def test_a_reduced_plan_is_built_and_found_again(builder: PlanBuilder, tiny_model: Path) -> None:
    source = PlanSource(tiny_model, "text encoder", "text_encoder", (), Weights.INT8)
    signature = Signature.of(inputs_of("text encoder"))
    found = []
    for _ in range(2):
        plan: Any = builder.build(source, OPENVINO_STATIC, signature, CancellationToken.none).result(300)
        found.append(plan.from_store)
        plan.close()
    assert found == [False, True]


@pytest.fixture(scope="module")
def wide_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text encoder of 57 million weights: 230 MB in f32, with hardly any embeddings."""
    import torch
    from safetensors.torch import load_file, save_file
    from transformers import CLIPTextConfig, CLIPTextModel

    folder = tmp_path_factory.mktemp("wide")
    layers = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 8, "num_attention_heads": 12}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        CLIPTextModel(CLIPTextConfig(vocab_size=100, **layers)).save_pretrained(folder / "text_encoder")
    (file,) = folder.rglob("*.safetensors")
    save_file({name: tensor.half() for name, tensor in load_file(file).items()}, file, metadata={"format": "pt"})
    return folder


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_plan_at_rest_holds_as_much_less_as_its_weights_are_smaller(wide_model: Path, tmp_path: Path) -> None:
    inputs, held = inputs_of("text encoder", 1), {}
    for weights in Weights:
        path = tmp_path / f"{weights}.xml"
        convert(wide_model, "text encoder", path, (), weights)
        plan = OpenVinoPlan(path, Signature.of(inputs))
        plan.execute(inputs)
        held[weights] = psutil.Process(plan._process.pid).memory_full_info().uss
        plan.close()
    assert held[Weights.FULL] - held[Weights.HALF] > 80e6  # 113 MB fewer weights
    assert held[Weights.FULL] - held[Weights.INT8] > 120e6  # 170 MB fewer
