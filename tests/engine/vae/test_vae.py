"""The VAE with its switches: each flip makes its plans wrong, and no switch changes what a small picture is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cancellation import CancellationToken
from engine.errors import HostClosed
from engine.models.description import describe
from engine.plans.plan import EAGER, OPENVINO_STATIC, Plan, Signature
from engine.request import Backend

if TYPE_CHECKING:
    import torch

    from engine.models.model import Model

NONE = CancellationToken.none


class RecordedPlans:
    """A builder whose plans are ready at once and answer with twice their input."""

    def __init__(self) -> None:
        self.built: list[str] = []

    def build(self, source: Any, kind: str, signature: Signature, token: CancellationToken) -> Future[Plan]:
        self.built.append(f"{source.component}, {kind}")
        future: Future[Plan] = Future()
        future.set_result(Doubling())
        return future


class Doubling:
    kind = "openvino-static"
    is_alive = True

    async def execute_async(self, inputs: Any, token: CancellationToken = NONE) -> Any:
        return inputs[0] * 2

    def execute(self, inputs: Any, token: CancellationToken = NONE) -> Any:
        return inputs[0] * 2

    def close(self) -> None:
        self.is_alive = False


@pytest.fixture
def model(tiny_model: Path, stream: Any) -> Iterator[Model]:
    import torch

    from engine.models.model import load

    builder: Any = RecordedPlans()
    loaded = asyncio.run(
        load(describe(str(tiny_model)), stream, builder, "cpu", torch.float32, lambda what, fraction: None, NONE)
    )
    yield loaded
    loaded.close()


def latents(height: int, width: int) -> torch.Tensor:
    import torch

    return torch.randn(1, 4, height, width, generator=torch.Generator().manual_seed(5))


def test_each_flip_of_a_switch_raises_both_versions_and_nothing_else_does(model: Model) -> None:
    vae = model.vae
    versions = []
    changes: list[Callable[[], None]] = [
        lambda: vae.set_tiling(False),
        lambda: vae.set_tiling(True),
        lambda: vae.set_tiling(True),
        lambda: vae.set_slicing(True),
        lambda: vae.set_slicing(True),
        lambda: vae.set_tiling(False),
        lambda: vae.set_slicing(False),
    ]
    for change in changes:
        change()
        assert vae.encoder.version == vae.decoder.version
        versions.append(vae.decoder.version)
    assert versions == [0, 1, 1, 2, 2, 3, 4]
    assert (vae.tiling, vae.slicing) == (False, False)
    assert (model.unet.version, model.text_encoders[0].version) == (0, 0)


def test_the_switches_are_diffusers_own(model: Model) -> None:
    model.vae.set_tiling(True)
    model.vae.set_slicing(True)
    inner = model.vae._vae
    assert (inner.use_tiling, inner.use_slicing) == (True, True)
    model.vae.set_tiling(False)
    model.vae.set_slicing(False)
    assert (inner.use_tiling, inner.use_slicing) == (False, False)


def test_a_flip_closes_the_plans_of_the_vae_alone(model: Model) -> None:
    needed = model.signatures(64, 64, 1, 2)
    model.prepare(needed, Backend.OPENVINO)
    assert model.ready_kind(needed, Backend.OPENVINO) == "openvino-static"
    model.vae.set_slicing(True)
    assert [runner.ready(signature, OPENVINO_STATIC) for runner, signature in needed] == [True, True, False]
    assert model.ready_kind(needed, Backend.OPENVINO) == "eager"


async def test_a_decode_undoes_the_scaling_that_an_encode_does(model: Model) -> None:
    import torch

    inner, x = model.vae._vae, latents(16, 16)
    with torch.inference_mode():
        expected = inner.decode(x / 0.5, return_dict=False)[0]
        assert torch.equal(await model.vae.decode(x, EAGER, NONE), expected)
        moments = inner.encode(expected, return_dict=False)[0].mean * 0.5
        assert torch.equal(await model.vae.encode(expected, EAGER, NONE), moments)


async def test_a_tiled_decode_is_eager_and_whole(model: Model) -> None:
    """The tiny model's tile is 64 pixels: a decode of 96 goes by tiles, one of 64 doesn't."""
    import torch

    vae = model.vae
    large, small = latents(48, 40), latents(32, 32)
    whole, at_once = await vae.decode(large, EAGER, NONE), await vae.decode(small, EAGER, NONE)
    for size in (large, small):
        vae.decoder.prepare(Signature.of((size,)), OPENVINO_STATIC)
    assert torch.equal(await vae.decode(large, OPENVINO_STATIC, NONE), large / 0.5 * 2)  # the plan's answer
    vae.set_tiling(True)
    vae.decoder.prepare(Signature.of((large,)), OPENVINO_STATIC)
    tiled = await vae.decode(large, OPENVINO_STATIC, NONE)
    assert tiled.shape == whole.shape == (1, 3, 96, 80)
    assert torch.isfinite(tiled).all()
    assert not torch.equal(tiled, whole)
    assert torch.equal(await vae.decode(small, EAGER, NONE), at_once)
    vae.set_tiling(False)
    assert torch.equal(await vae.decode(large, EAGER, NONE), whole)


async def test_slicing_changes_no_picture(model: Model) -> None:
    import torch

    x = torch.cat([latents(16, 20), -latents(16, 20)])
    together = await model.vae.decode(x, EAGER, NONE)
    model.vae.set_slicing(True)
    assert torch.allclose(await model.vae.decode(x, EAGER, NONE), together, atol=1e-5)


async def test_a_tiled_encode_is_whole(model: Model) -> None:
    import torch

    picture = torch.rand(1, 3, 96, 80) * 2 - 1
    model.vae.set_tiling(True)
    encoded = await model.vae.encode(picture, OPENVINO_STATIC, NONE)
    assert encoded.shape == (1, 4, 48, 40)
    assert torch.isfinite(encoded).all()


async def test_both_hosts_are_closed_with_the_model(model: Model) -> None:
    model.close()
    for run in (model.vae.decode(latents(8, 8), EAGER, NONE), model.vae.encode(latents(8, 8), EAGER, NONE)):
        with pytest.raises(HostClosed):
            await run


@given(level=st.integers(0, 255))
def test_every_level_of_a_picture_is_itself(level: int) -> None:
    import torch

    from engine.vae.vae import to_rgb

    picture = torch.full((1, 3, 2, 3), level / 127.5 - 1)
    assert (to_rgb(picture) == level).all()


def test_pixels_are_rounded_clamped_and_row_by_row() -> None:
    import torch

    from engine.vae.vae import to_rgb

    picture = torch.zeros(1, 3, 2, 3)
    picture[0, 0, 0, 1], picture[0, 1, 1, 2], picture[0, 2, 0, 0] = 7.0, -7.0, 0.499 / 127.5
    levels = to_rgb(picture)
    assert (levels.shape, levels.dtype, levels.is_contiguous()) == ((2, 3, 3), torch.uint8, True)
    assert levels[0, 1].tolist() == [255, 128, 128]
    assert levels[1, 2].tolist() == [128, 0, 128]
    assert levels[0, 0].tolist() == [128, 128, 128]
