"""Requests and settings are validated, immutable, and survive JSON and pickling."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from engine.request import MAX_PROMPT, MAX_SEED, MAX_SIDE, Backend, EngineSettings, GenerationRequest, Sampler, Switch

# every character that a string of text can hold, and so no half of a surrogate pair
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
REQUESTS = st.builds(
    GenerationRequest,
    prompt=TEXT,
    negative_prompt=TEXT,
    width=st.integers(32, MAX_SIDE),
    height=st.integers(32, MAX_SIDE),
    steps=st.integers(1, 150),
    guidance_scale=st.floats(1, 30),
    sampler=st.sampled_from(Sampler),
    seed=st.integers(0, MAX_SEED),
    model=TEXT,
    backend=st.sampled_from(Backend),
)


@given(REQUESTS)
def test_a_request_survives_json_and_pickling(request: GenerationRequest) -> None:
    assert GenerationRequest.model_validate_json(request.model_dump_json()) == request
    assert pickle.loads(pickle.dumps(request)) == request
    assert hash(pickle.loads(pickle.dumps(request))) == hash(request)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("width", 31),
        ("width", MAX_SIDE + 1),
        ("height", 0),
        ("height", -128),
        ("height", 128.5),
        ("steps", 0),
        ("steps", 151),
        ("guidance_scale", 0.99),
        ("guidance_scale", 30.5),
        ("guidance_scale", float("nan")),
        ("guidance_scale", float("inf")),
        ("sampler", "DPM"),
        ("seed", -1),
        ("seed", MAX_SEED + 1),
        ("backend", "cuda"),
        ("prompt", "a" * (MAX_PROMPT + 1)),
        ("prompt", "\ud800"),
        ("negative_prompt", None),
        ("model", None),
        ("strength", 0.5),
    ],
)
def test_a_request_out_of_range_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError) as refused:
        GenerationRequest(**{field: value})
    assert refused.value.errors()[0]["loc"] == (field,)


def test_a_request_can_not_be_changed() -> None:
    request = GenerationRequest()
    with pytest.raises(ValidationError):
        request.seed = 1


@given(
    st.builds(
        EngineSettings,
        output_folder=st.none() | st.just(Path("pictures")),
        plan_folder=st.none() | st.just(Path("plans")),
        previews=st.booleans(),
        preview_interval=st.floats(0, 60),
        vae_tiling=st.sampled_from(Switch),
        vae_slicing=st.sampled_from(Switch),
        build_plans=st.booleans(),
    )
)
def test_settings_survive_json_and_pickling(settings: EngineSettings) -> None:
    assert EngineSettings.model_validate_json(settings.model_dump_json()) == settings
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.mark.parametrize("interval", [-0.1, 61, float("nan"), float("inf")])
def test_a_preview_interval_out_of_range_is_refused(interval: float) -> None:
    with pytest.raises(ValidationError):
        EngineSettings(preview_interval=interval)


def test_names_are_what_people_type() -> None:
    assert f"{Sampler.DPMPP_2M_KARRAS}" == "DPM++ 2M Karras"
    assert f"{Backend.OPENVINO} {Switch.AUTO}" == "openvino auto"
