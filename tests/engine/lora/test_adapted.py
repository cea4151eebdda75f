"""LoRAs as inputs give what PEFT gives, eagerly and as an OpenVINO plan, and leave the module as it was."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from tests.engine.lora.written import Pairs, random_pairs
from tests.engine.tiny_model import CONTEXT, WIDTH

PARTS = ("unet", "text_encoder")
# ranks of two LoRAs and the layout that they are stacked in; the strengths that they are compared at
RANKS = (4, 6)
STRENGTHS = [(0.7, -0.4), (1.0, 0.0), (0.0, 1.3)]


def component(part: str) -> Any:
    from engine.models.components import Component

    return Component.UNET if part == "unet" else Component.TEXT_ENCODER


def function(part: str, module: Any) -> Any:
    from engine.models.components import as_function

    return as_function(component(part), module)


def inputs_of(part: str) -> tuple[Any, ...]:
    """Sizes that are none of those that are traced with."""
    import torch

    draw = torch.Generator().manual_seed(1)
    if part == "text_encoder":
        return torch.randint(0, 50, (1, CONTEXT), generator=draw), torch.ones(1, CONTEXT, dtype=torch.int64)
    latents = torch.randn(2, 4, 12, 20, generator=draw)
    return latents, torch.tensor(601.0), torch.randn(2, 2 * CONTEXT, WIDTH, generator=draw)


def layers_of(part: str, module: Any) -> tuple[str, ...]:
    from engine.lora.layout import all_layers, attention_layers

    return all_layers(module) if part == "unet" else attention_layers(module)


def two_loras(part: str, module: Any) -> list[Pairs]:
    """One on every layer, one on every other."""
    layers = layers_of(part, module)
    return [random_pairs(module, layers, RANKS[0], 1, 3.0), random_pairs(module, layers[::2], RANKS[1], 2, 12.0)]


def stacked(part: str, loras: list[Pairs], strengths: tuple[float, ...]) -> Any:
    from pathlib import Path

    from engine.lora.lora_file import LoraFile, LowRankPair
    from engine.lora.stack import LoraStack

    files = []
    for lora in loras:
        parts: dict[str, Any] = {"unet": {}, "text_encoder": {}}
        parts[part] = {layer: LowRankPair(down, up, alpha / down.shape[0]) for layer, (down, up, alpha) in lora.items()}
        files.append(LoraFile(Path("a.safetensors"), "another model", **parts))
    return LoraStack(list(zip(files, strengths, strict=True)))


def with_peft(module: Any, loras: list[Pairs], strengths: tuple[float, ...]) -> Any:
    """The module with PEFT's own layers, whose strengths are set as diffusers sets them."""
    from diffusers.utils.peft_utils import set_weights_and_activate_adapters
    from peft import LoraConfig, inject_adapter_in_model

    theirs = copy.deepcopy(module)
    names = [f"lora{number}" for number in range(len(loras))]
    for name, lora in zip(names, loras, strict=True):
        down, _, alpha = next(iter(lora.values()))
        config = LoraConfig(r=down.shape[0], lora_alpha=alpha, target_modules=list(lora))
        inject_adapter_in_model(config, theirs, name)
        for layer, (down, up, _) in lora.items():
            place = theirs.get_submodule(layer)
            place.lora_A[name].weight.data.copy_(down)
            place.lora_B[name].weight.data.copy_(up.reshape(place.lora_B[name].weight.shape))
    set_weights_and_activate_adapters(theirs, names, list(strengths))
    return theirs.eval()


def difference(answer: Any, expected: Any) -> float:
    assert answer.shape == expected.shape
    value: float = ((answer - expected).abs().max() / expected.abs().max()).item()
    return value


@pytest.fixture(scope="module")
def expected(modules: dict[str, Any]) -> Callable[[str, tuple[float, ...]], Any]:
    import torch

    def answer(part: str, strengths: tuple[float, ...]) -> Any:
        theirs = with_peft(modules[part], two_loras(part, modules[part]), strengths)
        with torch.no_grad():
            return function(part, theirs)(*inputs_of(part))

    return answer


@pytest.mark.parametrize("strengths", STRENGTHS)
@pytest.mark.parametrize("part", PARTS)
def test_stacked_loras_give_what_peft_gives(
    modules: dict[str, Any], expected: Callable[..., Any], part: str, strengths: tuple[float, ...]
) -> None:
    import torch

    from engine.lora.adapted import AdaptedModule

    module = modules[part]
    stack = stacked(part, two_loras(part, module), strengths)
    layout = stack.layout_for(part, module)
    adapted = AdaptedModule(function(part, module), layout.layers)
    inputs, answer = inputs_of(part), expected(part, strengths)
    with torch.no_grad():
        given = adapted(*inputs, *stack.adapter_tensors(part, module, layout))
        plain = function(part, module)(*inputs)
    assert difference(given, answer) <= 1e-4
    assert difference(given, plain) > 1e-2


@pytest.fixture(scope="module")
def converted(modules: dict[str, Any]) -> Callable[[str], tuple[Any, Any]]:
    """Each part converted once, with every size open, as a compiled OpenVINO model and its layout."""
    import torch

    from engine.lora.adapted import AdaptedModule
    from engine.lora.layout import AdapterLayout, example_adapter_inputs
    from engine.models.components import example_inputs
    from engine.plans.openvino_runtime import import_openvino

    openvino = import_openvino()
    made: dict[str, tuple[Any, Any]] = {}

    def convert(part: str) -> tuple[Any, Any]:
        if part not in made:
            module = modules[part]
            layout = AdapterLayout(layers_of(part, module), 8)
            example = *example_inputs(component(part), module), *example_adapter_inputs(module, layout.layers)
            with torch.no_grad(), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = openvino.convert_model(
                    AdaptedModule(function(part, module), layout.layers), example_input=example
                )
            made[part] = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"}), layout
        return made[part]

    return convert


@pytest.mark.parametrize("strengths", STRENGTHS)
@pytest.mark.parametrize("part", PARTS)
def test_a_plan_traced_at_one_rank_gives_what_peft_gives_at_another(
    modules: dict[str, Any],
    expected: Callable[..., Any],
    converted: Callable[[str], tuple[Any, Any]],
    part: str,
    strengths: tuple[float, ...],
) -> None:
    import torch

    plan, traced = converted(part)
    stack = stacked(part, two_loras(part, modules[part]), strengths)
    layout = stack.layout_for(part, modules[part])
    assert layout.layers == traced.layers
    assert layout.rank == 2 * traced.rank
    tensors = *inputs_of(part), *stack.adapter_tensors(part, modules[part], layout)
    answer = torch.from_numpy(plan([tensor.numpy() for tensor in tensors])[0])
    assert difference(answer, expected(part, strengths)) <= 1e-4


@pytest.mark.parametrize("part", PARTS)
def test_zeros_as_adapters_change_no_bit(modules: dict[str, Any], part: str) -> None:
    import torch

    from engine.lora.adapted import AdaptedModule
    from engine.lora.layout import AdapterLayout
    from engine.lora.stack import LoraStack

    module, inputs = modules[part], inputs_of(part)
    layout = AdapterLayout(layers_of(part, module), 8)
    with torch.no_grad():
        answer = AdaptedModule(function(part, module), layout.layers)(
            *inputs, *LoraStack().adapter_tensors(part, module, layout)
        )
        assert torch.equal(answer, function(part, module)(*inputs))


def hooks(module: Any) -> int:
    return sum(len(part._forward_pre_hooks) + len(part._forward_hooks) for part in module.modules())


def test_a_call_that_is_stopped_leaves_nothing_behind(unet: Any, stream: Any) -> None:
    """Stopped by the checkpoint of an eager stream, as a cancelled call is."""
    import torch

    from engine.cancellation import CancellationToken
    from engine.errors import OperationCancelled
    from engine.lora.adapted import AdaptedModule
    from engine.plans.eager import EagerPlan

    module = copy.deepcopy(unet)
    stream.watch(module)
    before = {name: type(part) for name, part in module.named_modules()}
    watched, weights = hooks(module), {name: x.clone() for name, x in module.state_dict().items()}
    inputs = inputs_of("unet")
    with torch.no_grad():
        plain = function("unet", module)(*inputs)
    stack = stacked("unet", two_loras("unet", module), (1.0, 1.0))
    layout = stack.layout_for("unet", module)
    adapted = AdaptedModule(function("unet", module), layout.layers)
    tensors = stack.adapter_tensors("unet", module, layout)
    plan = EagerPlan(adapted, stream)
    whole = plan.execute((*inputs, *tensors))
    token = CancellationToken()
    stopper = adapted.function.get_submodule(f"unet.{layout.layers[len(layout.layers) // 2]}")
    stop = stopper.register_forward_pre_hook(lambda part, given: token.cancel("Enough."))
    with pytest.raises(OperationCancelled, match="Enough"):
        plan.execute((*inputs, *tensors), token)
    assert [part for part in adapted.modules() if getattr(part, "adapter", None) is not None] == []
    stop.remove()
    assert torch.equal(plan.execute((*inputs, *tensors)), whole)
    assert {name: type(part) for name, part in module.named_modules()} == before
    assert hooks(module) == watched
    assert all(torch.equal(x, weights[name]) for name, x in module.state_dict().items())
    with torch.no_grad():
        assert torch.equal(function("unet", module)(*inputs), plain)


def test_weights_that_are_replaced_are_those_that_run(unet: Any) -> None:
    """Released and restored weights reach the twin, which holds none of its own."""
    import torch

    from engine.lora.adapted import AdaptedModule
    from engine.lora.layout import AdapterLayout
    from engine.lora.stack import LoraStack

    module = copy.deepcopy(unet)
    layout = AdapterLayout(layers_of("unet", module), 8)
    adapted = AdaptedModule(function("unet", module), layout.layers)
    conv_in = module.get_submodule("conv_in")
    conv_in._parameters["weight"] = torch.nn.Parameter(torch.zeros_like(conv_in.weight), requires_grad=False)
    inputs = inputs_of("unet")
    with torch.no_grad():
        answer = adapted(*inputs, *LoraStack().adapter_tensors("unet", module, layout))
        assert torch.equal(answer, function("unet", module)(*inputs))


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [(1, 1, 0, 1), (1, 2, 0, 1), (1, 1, 1, 1), (3, 1, 1, 1), (3, 2, 1, 1), (3, 1, 2, 2), (2, 2, 0, 1)],
)
def test_a_convolution_of_any_kind_takes_a_pair(
    torch_imported: None, kernel: int, stride: int, padding: int, dilation: int
) -> None:
    import torch

    from engine.lora.adapted import AdaptedModule
    from engine.lora.layout import AdapterLayout, adapter_shapes

    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = torch.nn.Sequential(torch.nn.Conv2d(5, 7, kernel, stride, padding, dilation))

        def forward(self, x: Any) -> Any:
            return self.held(x)

    holder, x = Holder(), torch.randn(2, 5, 9, 11)
    layout = AdapterLayout(("0",), 8)
    ((down_shape, up_shape),) = adapter_shapes(holder.held, layout)
    down, up, strengths = torch.randn(down_shape), torch.randn(up_shape), torch.randn(8)
    answer = AdaptedModule(holder, layout.layers)(x, strengths, down, up)
    merged = copy.deepcopy(holder)
    merged.held[0].weight.data += torch.einsum("or,r,rchw->ochw", up, strengths, down)
    assert difference(answer, merged(x)) <= 1e-5
