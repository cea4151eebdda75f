"""Previews show the clean picture that a step predicts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.events import RgbImage
from engine.generation.samplers import EPSILON, FLOW, V_PREDICTION
from engine.models.latent_rgb import LatentRgb

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.usefixtures("torch_imported")

IMAGE = RgbImage(width=1, height=1, pixels=b"vae")
FACTORS = LatentRgb(factors=((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 0)), bias=(0.0, 0.5, -0.5))


@given(level=st.floats(0.001, 0.999), seed=st.integers(0, 1000), kind=st.sampled_from([EPSILON, V_PREDICTION, FLOW]))
def test_the_clean_prediction_undoes_the_noise(level: float, seed: int, kind: str) -> None:
    import torch

    from engine.generation.preview import predicted_clean

    draw = torch.Generator().manual_seed(seed)
    clean, noise = torch.randn(2, 1, 4, 4, 4, generator=draw, dtype=torch.float64)
    if kind == FLOW:
        noisy, prediction = (1 - level) * clean + level * noise, noise - clean
    else:
        keep, add = level**0.5, (1 - level) ** 0.5
        noisy = keep * clean + add * noise
        prediction = noise if kind == EPSILON else keep * noise - add * clean
    assert torch.allclose(predicted_clean(prediction, noisy, level, level, kind), clean, atol=1e-9)


def test_a_projection_is_linear_with_a_pixel_for_each_latent() -> None:
    import torch

    from engine.generation.preview import project

    latents = torch.zeros(1, 4, 2, 3)
    latents[0, :, 0, 0] = torch.tensor([1.0, 0.5, -0.5, 9.0])
    latents[0, :, 1, 2] = torch.tensor([-3.0, -3.0, 3.0, 0.0])
    image = project(latents, FACTORS)
    assert (image.width, image.height) == (3, 2)
    pixels = [tuple(image.pixels[start : start + 3]) for start in range(0, 18, 3)]
    assert pixels == [(255, 255, 0), *[(128, 191, 64)] * 4, (0, 0, 255)]


def test_latents_that_are_not_numbers_still_make_some_image() -> None:
    import torch

    from engine.generation.preview import project

    assert len(project(torch.full((1, 4, 2, 2), float("nan")), FACTORS).pixels) == 12


async def decode(latents: torch.Tensor) -> RgbImage:
    return IMAGE


async def made(factors: LatentRgb | None, decode_seconds: float | None, step_seconds: float) -> RgbImage | None:
    import torch

    from engine.generation.preview import PreviewMaker

    return await PreviewMaker(factors, decode, decode_seconds, 0).make(torch.zeros(1, 4, 2, 2), step_seconds)


async def test_the_vae_decodes_where_that_costs_less_than_a_tenth_of_a_step() -> None:
    assert await made(FACTORS, 0.09, 1.0) == IMAGE
    assert await made(None, 0.09, 1.0) == IMAGE
    for unaffordable in (await made(FACTORS, 0.11, 1.0), await made(FACTORS, None, 1.0)):
        assert unaffordable is not None
        assert unaffordable.width == 2


async def test_where_neither_way_is_open_there_is_no_preview() -> None:
    assert await made(None, 0.11, 1.0) is None
    assert await made(None, None, 1.0) is None


async def test_previews_are_no_closer_than_the_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    from engine.generation.preview import PreviewMaker

    now = [100.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    maker, latents = PreviewMaker(FACTORS, decode, None, 0.5), torch.zeros(1, 4, 2, 2)
    shown = []
    for now[0] in (100.0, 100.4, 100.5, 100.9, 101.0):
        shown.append(await maker.make(latents, 1.0) is not None)
    assert shown == [True, False, True, False, True]
