"""Prompts are encoded in full, as the encoder was trained to see them, and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from engine.cancellation import CancellationToken
from engine.errors import OperationCancelled
from engine.plans.plan import EAGER, OPENVINO_STATIC
from tests.engine.generation.running import encode, watch
from tests.engine.tiny_model import CONTEXT, WIDTH

if TYPE_CHECKING:
    from engine.generation.prompt import PromptEncoder
    from engine.models.model import Model

# every letter of it is a token of the tiny model
LONG = " ".join("abcdefghij" * 20)


class Counting:
    """A model with its text encoder counted."""

    def __init__(self, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
        self.inputs: list[tuple[list[int], list[int]]] = []
        watch(
            model.runner(model.text_encoders[0]),
            monkeypatch,
            lambda inputs: self.inputs.append((inputs[0][0].tolist(), inputs[1][0].tolist())),
        )

    @property
    def calls(self) -> int:
        return len(self.inputs)


@pytest.fixture
def encoder(tiny: Model) -> PromptEncoder:
    from engine.generation.prompt import PromptEncoder

    return PromptEncoder(tiny)


@pytest.fixture
def counting(tiny: Model, monkeypatch: pytest.MonkeyPatch) -> Counting:
    return Counting(tiny, monkeypatch)


def test_a_prompt_is_cut_to_the_encoder_s_length(encoder: PromptEncoder) -> None:
    assert encoder.chunks("") == [[]]
    assert [len(chunk) for chunk in encoder.chunks("abc")] == [3]
    assert [len(chunk) for chunk in encoder.chunks("a" * (CONTEXT - 2))] == [CONTEXT - 2]
    assert [len(chunk) for chunk in encoder.chunks("a" * (CONTEXT - 1))] == [CONTEXT - 2, 1]
    chunks = encoder.chunks(LONG)
    assert [len(chunk) for chunk in chunks] == [75, 75, 50]
    assert "".join(encoder._model.tokenizers[0].decode(chunk) for chunk in chunks).replace(" ", "") == LONG.replace(
        " ", ""
    )


async def test_each_chunk_is_encoded_whole_and_none_is_lost(encoder: PromptEncoder, counting: Counting) -> None:
    import torch

    embeddings = (await encode(encoder, encoder._model, LONG, 3)).embeddings
    assert embeddings.shape == (1, 3 * CONTEXT, WIDTH)
    assert counting.calls == 3
    for ids, mask in counting.inputs:
        assert (ids[0], len(ids), mask) == (0, CONTEXT, [1] * CONTEXT)
        assert 1 in ids
    for number, chunk in enumerate(encoder.chunks(LONG)):
        text = encoder._model.tokenizers[0].decode(chunk)
        alone = (await encode(encoder, encoder._model, text, 1)).embeddings
        assert torch.equal(embeddings[:, number * CONTEXT : (number + 1) * CONTEXT], alone)


async def test_a_short_prompt_beside_a_long_one_is_filled_with_empty_chunks(encoder: PromptEncoder) -> None:
    import torch

    embeddings = (await encode(encoder, encoder._model, "a", 2)).embeddings
    empty = (await encode(encoder, encoder._model, "", 1)).embeddings
    assert torch.equal(embeddings[:, CONTEXT:], empty)
    assert torch.equal(embeddings[:, :CONTEXT], (await encode(encoder, encoder._model, "a", 1)).embeddings)


async def test_the_tokens_are_those_of_diffusers(starter: Model, tiny: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.generation.prompt import PromptEncoder

    for model in (starter, tiny):
        counting = Counting(model, monkeypatch)
        for prompt in ("", "a red apple"):
            await encode(PromptEncoder(model), model, prompt, 1)
            length = model.description.text_length
            expected = model.tokenizers[0](prompt, padding="max_length", max_length=length)
            ids, mask = counting.inputs[-1]
            assert ids == expected["input_ids"]
            assert mask == (expected["attention_mask"] if model is starter else [1] * length)


async def test_a_prompt_is_encoded_once(encoder: PromptEncoder, counting: Counting) -> None:
    first = await encode(encoder, encoder._model, "a dog", 1)
    assert await encode(encoder, encoder._model, "a dog", 1) is first
    assert counting.calls == 1
    await encode(encoder, encoder._model, "a cat", 1)
    assert counting.calls == 2
    encoder.forget()
    await encode(encoder, encoder._model, "a dog", 1)
    assert counting.calls == 3


async def test_what_is_kept_belongs_to_the_kind_of_plan(encoder: PromptEncoder, counting: Counting) -> None:
    for kind in (EAGER, OPENVINO_STATIC, EAGER, OPENVINO_STATIC):
        await encode(encoder, encoder._model, "a dog", 1, kind)
    assert counting.calls == 2


async def test_only_the_last_prompts_are_kept(encoder: PromptEncoder, counting: Counting) -> None:
    from engine.generation.prompt import KEPT

    await encode(encoder, encoder._model, "first", 1)
    for number in range(KEPT - 1):
        await encode(encoder, encoder._model, "a" * (number % 70) + "b" * (number // 70 + 1), 1)
    await encode(encoder, encoder._model, "first", 1)  # used again: no longer the oldest
    before = counting.calls
    await encode(encoder, encoder._model, "one more", 1)
    await encode(encoder, encoder._model, "first", 1)
    assert counting.calls == before + 1
    assert len(encoder._kept) == KEPT


async def test_a_cancelled_encoding_keeps_nothing(encoder: PromptEncoder, counting: Counting) -> None:
    token = CancellationToken()
    token.cancel()
    with pytest.raises(OperationCancelled):
        await encode(encoder, encoder._model, "a dog", 1, token=token)
    await encode(encoder, encoder._model, "a dog", 1)
    assert counting.calls == 2
