from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from engine.events import Finished
from engine.request import EngineSettings, GenerationRequest
from engine.validation import first_fault


@pytest.mark.parametrize(
    ("model", "values", "where", "what"),
    [
        (GenerationRequest, {"steps": 1000}, "steps", "must be at most 150"),
        (GenerationRequest, {"width": 1}, "width", "must be at least 32"),
        (GenerationRequest, {"steps": "many"}, "steps", "isn't a whole number"),
        (GenerationRequest, {"steps": 1.5}, "steps", "isn't a whole number"),
        (GenerationRequest, {"guidance_scale": None}, "guidance_scale", "isn't a number"),
        (GenerationRequest, {"guidance_scale": float("nan")}, "guidance_scale", "isn't a finite number"),
        (GenerationRequest, {"prompt": 7}, "prompt", "isn't text"),
        (GenerationRequest, {"prompt": "a\udcff"}, "prompt", "isn't valid text"),
        (GenerationRequest, {"prompt": "a" * 20_001}, "prompt", "is longer than 20,000 characters"),
        (GenerationRequest, {"sampler": "best"}, "sampler", "isn't 'Euler', 'Euler a'"),
        (GenerationRequest, {"colour": "red"}, "colour", "isn't known"),
        (GenerationRequest, [], "", "isn't a group of named values"),
        (EngineSettings, {"previews": "perhaps"}, "previews", "is neither true nor false"),
        (EngineSettings, {"output_folder": 3}, "output_folder", "isn't a path"),
        (Finished, {"job": 1}, "request", "is missing"),
        (Finished, {"job": 1, "request": {"steps": 0}}, "request.steps", "must be at least 1"),
    ],
)
def test_a_fault_has_a_place_and_words(model: type[BaseModel], values: Any, where: str, what: str) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(values)
    place, words = first_fault(refused.value)
    assert place == where
    assert words.startswith(what)
    assert "nput should" not in words


def test_broken_json_is_said_plainly() -> None:
    with pytest.raises(ValidationError) as refused:
        GenerationRequest.model_validate_json('{"steps":')
    assert first_fault(refused.value) == ("", "isn't valid JSON")
