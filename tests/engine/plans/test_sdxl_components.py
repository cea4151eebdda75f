"""The components that only SDXL has: their functions are the libraries' own, and plans of any size agree with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.plans.builder import PlanBuilder, PlanSource
from engine.plans.plan import OPENVINO_DYNAMIC, Signature
from tests.engine.tiny_model import CONTEXT
from tests.engine.tiny_sdxl import POOLED, WIDTH, WIDTHS

if TYPE_CHECKING:
    import torch

    from engine.plans.eager import EagerStream

MINUTES = 300  # seconds, for what takes seconds
COMPONENTS = ("first text encoder", "second text encoder", "noise predictor")


def function(folder: Path, name: str) -> Any:
    from engine.models.components import Component, as_function
    from engine.models.load import load_module

    component = Component(name)
    return as_function(component, load_module(folder, component.folder))


def inputs_of(name: str, batch: int, side: int) -> tuple[torch.Tensor, ...]:
    import torch

    draw = torch.Generator().manual_seed(side)
    if name == "noise predictor":
        latents, prompt = torch.randn(batch, 4, side, side + 2, generator=draw), torch.randn(batch, 2 * CONTEXT, WIDTH)
        sizes = torch.tensor([[512.0, 768.0, 0.0, 0.0, 512.0, 768.0]]).repeat(batch, 1)
        return latents, torch.tensor(601.0), prompt, torch.randn(batch, POOLED, generator=draw), sizes
    ids = torch.randint(2, 50, (batch, CONTEXT), generator=draw)
    ids[:, side] = 1  # the end of the prompt, where the pooled embedding is taken
    return ids, torch.ones_like(ids)


def relative(answer: torch.Tensor, expected: torch.Tensor) -> float:
    assert answer.shape == expected.shape
    return float((answer - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize("end", [1, 2], ids=["the end token of the config", "the largest token, as old configs mean"])
def test_the_second_text_encoder_answers_with_hidden_states_and_then_the_projection(
    changed_sdxl: Path, end: int
) -> None:
    import torch
    from transformers import CLIPTextModelWithProjection

    config = changed_sdxl / "text_encoder_2" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text(encoding="utf-8")) | {"eos_token_id": end}))
    theirs = CLIPTextModelWithProjection.from_pretrained(changed_sdxl / "text_encoder_2", local_files_only=True)
    ids, mask = inputs_of("second text encoder", 2, 9)
    with torch.inference_mode():
        answer, expected = (
            function(changed_sdxl, "second text encoder")(ids, mask),
            theirs(ids, output_hidden_states=True),
        )
    assert answer.shape == (2, CONTEXT + 1, POOLED)
    assert relative(answer[:, :-1], expected.hidden_states[-2]) <= 1e-6
    assert relative(answer[:, -1], expected.text_embeds) <= 1e-6


def test_the_first_text_encoder_answers_with_the_hidden_state_before_its_last_layer(tiny_sdxl: Path) -> None:
    import torch
    from transformers import CLIPTextModel

    theirs = CLIPTextModel.from_pretrained(tiny_sdxl / "text_encoder", local_files_only=True)
    ids, mask = inputs_of("first text encoder", 1, 9)
    with torch.inference_mode():
        answer, expected = function(tiny_sdxl, "first text encoder")(ids, mask), theirs(ids, output_hidden_states=True)
    assert answer.shape == (1, CONTEXT, WIDTHS[0])
    assert relative(answer, expected.hidden_states[-2]) <= 1e-6
    assert relative(answer, expected.last_hidden_state) > 0.1


@pytest.mark.parametrize("name", COMPONENTS)
def test_one_open_plan_serves_every_size(
    tiny_builder: PlanBuilder, tiny_sdxl: Path, stream: EagerStream, name: str
) -> None:
    from engine.models.components import Component
    from engine.plans.eager import EagerPlan

    source = PlanSource(tiny_sdxl, name, Component(name).folder)
    opened = Signature.of(inputs_of(name, 1, 8)).opened
    plan = tiny_builder.build(source, OPENVINO_DYNAMIC, opened, CancellationToken.none).result(MINUTES)
    eager = EagerPlan(function(tiny_sdxl, name), stream)
    for batch, side in ((2, 10), (1, 8), (2, 14)):
        inputs = inputs_of(name, batch, side)
        assert relative(plan.execute(inputs), eager.execute(inputs)) <= 1e-4
    plan.close()
