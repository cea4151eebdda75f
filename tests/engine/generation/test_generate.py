"""From request to picture: what it was made with, and what happens where memory or numbers run out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import NonFiniteLatents, OperationCancelled, OutOfMemory, RequestRefused
from engine.events import MadeWith, RgbImage
from engine.request import EngineSettings, GenerationRequest, Switch

if TYPE_CHECKING:
    from engine.generation.generate import Painter
    from engine.models.model import Model

REQUEST = GenerationRequest(prompt="a dog", width=40, height=32, steps=2, seed=3)
AUTO = EngineSettings()


@pytest.fixture
def painter(tiny: Model) -> Painter:
    from engine.generation.generate import Painter

    return Painter(tiny, "1.2.3")


async def make(
    painter: Painter,
    request: GenerationRequest = REQUEST,
    settings: Callable[[], EngineSettings] = lambda: AUTO,
    token: CancellationToken = CancellationToken.none,
    decoding: Callable[[], None] = lambda: None,
) -> tuple[RgbImage, MadeWith]:
    from engine.generation.pipeline import Listeners

    listeners = Listeners(lambda report, plan: None, decoding, lambda what, fraction: None)
    return await painter.make_picture(request, settings, listeners, token)


async def test_a_picture_says_what_it_was_made_with(painter: Painter) -> None:
    import torch

    image, made_with = await make(painter)
    assert (image.width, image.height, len(image.pixels)) == (40, 32, 40 * 32 * 3)
    assert made_with == MadeWith(plan="eager", batch=2, safelight="1.2.3", torch=torch.__version__)
    _, unguided = await make(painter, REQUEST.model_copy(update={"guidance_scale": 1.0}))
    assert unguided.batch == 1


async def test_the_same_request_makes_the_same_picture_and_every_part_of_it_counts(painter: Painter) -> None:
    image, _ = await make(painter)
    assert (await make(painter))[0] == image
    for change in ({"seed": 4}, {"prompt": "a cat"}, {"negative_prompt": "a cat"}, {"guidance_scale": 9}, {"steps": 3}):
        assert (await make(painter, REQUEST.model_copy(update=change)))[0] != image


async def test_a_long_prompt_and_a_short_negative_one_fit_together(painter: Painter) -> None:
    long = REQUEST.model_copy(update={"prompt": "abcdefghij" * 20, "negative_prompt": "b"})
    assert (await make(painter, long))[0] != (await make(painter))[0]


async def test_what_the_model_can_not_make_is_refused_before_any_work(painter: Painter) -> None:
    with pytest.raises(RequestRefused, match="nearest size is 40×32"):
        await make(painter, REQUEST.model_copy(update={"height": 33}))
    token = CancellationToken()
    token.cancel("too late")
    with pytest.raises(OperationCancelled, match="too late"):
        await make(painter, token=token)


async def test_a_switch_changed_while_the_picture_is_made_acts_at_the_decode(painter: Painter) -> None:
    settings = [AUTO]

    def decoding() -> None:
        settings[0] = EngineSettings(vae_tiling=Switch.ON, vae_slicing=Switch.ON)

    _, made_with = await make(painter, settings=lambda: settings[0], decoding=decoding)
    assert (made_with.vae_tiling, made_with.vae_slicing) == (True, True)
    _, made_with = await make(painter)
    assert (made_with.vae_tiling, made_with.vae_slicing) == (False, False)


def short_of_memory(painter: Painter, monkeypatch: pytest.MonkeyPatch, until_tiled: bool, error: Exception) -> None:
    vae = painter.model.vae
    decode = vae.decode_by

    async def failing(call: Any, latents: Any, token: CancellationToken) -> Any:
        if until_tiled and vae.tiling and vae.slicing:
            return await decode(call, latents, token)
        raise error

    monkeypatch.setattr(vae, "decode_by", failing)


ERRORS = [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried ...")]


@pytest.mark.parametrize("error", ERRORS, ids=["Python", "torch"])
async def test_a_decode_without_memory_is_tried_by_tiles(
    painter: Painter, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    short_of_memory(painter, monkeypatch, until_tiled=True, error=error)
    no_previews = EngineSettings(previews=False)
    _, made_with = await make(painter, settings=lambda: no_previews)
    assert (made_with.vae_tiling, made_with.vae_slicing) == (True, True)


@pytest.mark.parametrize("tiling", [Switch.AUTO, Switch.OFF])
async def test_without_memory_even_by_tiles_the_sentence_names_a_size_that_fits(
    painter: Painter, monkeypatch: pytest.MonkeyPatch, tiling: Switch
) -> None:
    short_of_memory(painter, monkeypatch, until_tiled=tiling is Switch.OFF, error=MemoryError())
    settings = EngineSettings(previews=False, vae_tiling=tiling)
    with pytest.raises(OutOfMemory, match="20×16 needs a quarter"):
        await make(painter, settings=lambda: settings)


async def test_another_error_of_the_decode_is_no_lack_of_memory(
    painter: Painter, monkeypatch: pytest.MonkeyPatch
) -> None:
    short_of_memory(painter, monkeypatch, until_tiled=True, error=RuntimeError("shapes differ"))
    with pytest.raises(RuntimeError, match="shapes differ"):
        await make(painter, settings=lambda: EngineSettings(previews=False))


async def test_a_picture_of_no_numbers_is_never_a_result(painter: Painter, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    async def decode(call: Any, latents: Any, token: CancellationToken) -> Any:
        return torch.full((1, 3, 32, 40), float("nan"))

    monkeypatch.setattr(painter.model.vae, "decode_by", decode)
    with pytest.raises(NonFiniteLatents, match="The decoded picture: 3,840 of 3,840 values"):
        await make(painter, settings=lambda: EngineSettings(previews=False))
