from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings.remembered import RememberedForm
from app.studio.form import Form
from engine.models.description import ModelDescription
from engine.request import MAX_LORAS, MAX_SEED, Backend, GenerationRequest, LoraUse, Sampler


def test_it_starts_with_what_the_model_looks_best_with(form: Form, starter: ModelDescription) -> None:
    assert form.request() == starter.defaults.model_copy(update={"seed": form.seed})


def test_a_size_the_model_cannot_make_is_rounded_and_said(form: Form) -> None:
    form.set_size(500, 130)
    assert (form.width, form.height) == (512, 128)
    assert form.width_note == "500 → 512, a multiple of 32"
    assert form.height_note == "130 → 128, a multiple of 32"
    form.set_size(9000, -5)
    assert (form.width, form.height) == (512, 32)
    assert form.width_note == "9000 → 512, the largest"
    assert form.height_note == "-5 → 32, the smallest"
    form.set_size(256, 128)
    assert (form.width_note, form.height_note) == ("", "")


@given(st.floats(-(10**6), 10**6), st.floats(-(10**6), 10**6))
def test_whatever_is_asked_for_the_model_can_make(width: float, height: float) -> None:
    from engine.models.description import describe

    form = Form(describe("starter"))
    form.set_size(width, height)
    form.description.check(form.request())


def test_swapping_twice_changes_nothing(form: Form) -> None:
    form.set_size(256, 128)
    form.swap_sides()
    assert (form.width, form.height) == (128, 256)
    form.swap_sides()
    assert (form.width, form.height) == (256, 128)


def test_a_random_seed_is_new_for_every_run(form: Form) -> None:
    shown = form.seed
    first, second = form.take_requests()[0].seed, form.take_requests()[0].seed
    assert first == shown
    assert second != first
    assert form.seed == second


def test_turning_random_off_keeps_the_last_seed(form: Form) -> None:
    used = form.take_requests()[0].seed
    form.random_seed = False
    assert form.take_requests()[0].seed == used


def test_a_typed_seed_is_kept(form: Form) -> None:
    form.fix_seed(7)
    assert [form.take_requests()[0].seed for _ in range(3)] == [7, 7, 7]


def test_a_new_seed_that_was_asked_for_is_the_one_that_is_used(form: Form) -> None:
    form.take_requests()
    form.draw_new_seed()
    assert form.take_requests()[0].seed == form.seed == 101


def test_several_pictures_have_seeds_one_after_the_other(form: Form) -> None:
    form.fix_seed(MAX_SEED - 1)
    form.count = 3
    assert [request.seed for request in form.take_requests()] == [MAX_SEED - 1, MAX_SEED, 0]


def test_a_sampler_that_the_model_cannot_use_is_left_alone(
    starter: ModelDescription, draw_seed: Callable[[], int]
) -> None:
    flow = starter.model_copy(update={"prediction": "flow_prediction"})
    form = Form(flow, draw_seed)
    form.use_sampler(Sampler.HEUN)
    form.use_sampler(Sampler.LCM)
    assert form.sampler is Sampler.HEUN


def test_restoring_gives_the_identical_request(form: Form) -> None:
    request = GenerationRequest(
        prompt="a red apple", negative_prompt="leaves", width=256, height=64, steps=7, guidance_scale=2.5,
        sampler=Sampler.EULER_A, seed=99, backend=Backend.EAGER,
    )  # fmt: skip
    form.restore(request)
    assert form.take_requests() == [request]


def test_what_is_remembered_comes_back(form: Form, starter: ModelDescription) -> None:
    form.prompt = "a house"
    form.fix_seed(5)
    form.count = 4
    remembered = RememberedForm.model_validate_json(form.remember().model_dump_json())
    other = Form(starter)
    other.recall(remembered)
    assert other.take_requests() == form.take_requests()


@pytest.mark.parametrize("name", ["prompt", "steps", "sampler", "seed", "random_seed", "count"])
def test_every_value_tells_when_it_changes(form: Form, name: str) -> None:
    told: list[object] = []
    getattr(form, f"{name}_changed").connect(told.append)
    new = {
        "prompt": "x", "steps": 3, "sampler": Sampler.UNIPC, "seed": 1, "random_seed": False, "count": 2,
    }[name]  # fmt: skip
    setattr(form, name, new)
    assert told == [new]


def test_loras_are_part_of_the_request_and_come_back_with_it(form: Form, starter: ModelDescription) -> None:
    form.add_lora(Path("/loras/a.safetensors"))
    form.add_lora(Path("/loras/b.safetensors"))
    form.add_lora(Path("/loras/a.safetensors"))
    form.set_lora_strength(1, -0.5)
    request = form.request()
    assert [(use.file, use.strength) for use in request.loras] == [
        (str(Path("/loras/a.safetensors")), 1), (str(Path("/loras/b.safetensors")), -0.5)
    ]  # fmt: skip
    form.remove_lora(0)
    assert form.request().loras == request.loras[1:]
    form.restore(request)
    assert form.request() == request
    form.restore(starter.defaults)
    assert form.loras == ()


def test_there_are_no_more_loras_than_a_request_takes(form: Form) -> None:
    for number in range(MAX_LORAS + 1):
        form.add_lora(Path(f"{number}.safetensors"))
    assert form.request().loras[-1] == LoraUse(file=f"{MAX_LORAS - 1}.safetensors")
