from __future__ import annotations

import pytest

from app.studio.progress import ProgressReader, plan_text, rate_text, time_text
from engine.events import Building, Decoding, Loading, Queued, Step


def step(number: int, steps: int = 10, seconds: float = 0.5) -> Step:
    return Step(job=1, step=number, steps=steps, plan="eager", seconds=seconds)


def test_a_step_says_how_far_how_fast_and_how_long_still() -> None:
    progress = ProgressReader(1).read(step(4))
    assert progress.text == "Step 4 of 10 · 2.0 steps/s · 3 s left"
    assert progress.fraction == pytest.approx(0.4)
    assert progress.plan == "eager"
    assert not progress.solid


def test_loading_and_building_say_what_and_how_far() -> None:
    reader = ProgressReader(1)
    assert reader.read(Loading(job=1, what="UNet", fraction=0.5)).text == "Loading UNet, 50 %"
    assert reader.read(Building(job=1, what="UNet", fraction=0.25)).text == "Building a plan for UNet, 25 %"
    assert reader.read(Queued(job=1, ahead=0)).fraction is None


def test_the_line_is_solid_while_decoding() -> None:
    reader = ProgressReader(1)
    reader.read(step(10))
    progress = reader.read(Decoding(job=1))
    assert progress.solid
    assert progress.fraction == 1
    assert progress.text == "Decoding"


def test_the_time_left_counts_the_pictures_to_come() -> None:
    reader = ProgressReader(3)
    reader.start_picture(1)
    assert reader.read(step(10)).text == "Picture 2 of 3 · Step 10 of 10 · 2.0 steps/s · 5 s left"


def test_one_slow_step_does_not_throw_the_estimate() -> None:
    reader = ProgressReader(1)
    for number in range(1, 9):
        reader.read(step(number, steps=100, seconds=0.1))
    assert "3.2 steps/s" not in (text := reader.read(step(9, steps=100, seconds=1.0)).text)
    assert "2.7 steps/s" in text


def test_numbers_read_as_people_say_them() -> None:
    assert rate_text(8.34) == "8.3 steps/s"
    assert rate_text(0.2) == "5.0 s/step"
    assert [time_text(s) for s in (0.2, 59, 61, 7300)] == ["1 s", "59 s", "1 min 1 s", "2 h 1 min"]


def test_plans_have_names() -> None:
    assert plan_text("eager") == "Eager"
    assert plan_text("openvino-static") == "Compiled (OpenVINO static)"
    assert plan_text("") == ""
