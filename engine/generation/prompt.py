"""Prompts to embeddings: in chunks of the encoder's length, so that a long prompt is encoded in full, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

import torch

from engine.generation.encoded_prompt import EncodedPrompt
from engine.hosts.chain import Call
from engine.lora.adapters import NO_ADAPTERS, Adapters
from engine.models.model import Model

KEPT = 128  # of one encoder each; some hundred kilobytes at most


class PromptEncoder:
    """Encodes prompts with a model's text encoders and keeps the embeddings of the last prompts.

    What is kept belongs to the kind of plan and to the LoRAs that made it, so that a picture has the same bits whether
    its prompt was encoded for it or kept. `encoder` counts the model's text encoders, of which each has its tokenizer.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._kept: OrderedDict[Hashable, EncodedPrompt] = OrderedDict()

    def chunks(self, prompt: str, encoder: int = 0) -> list[list[int]]:
        """The prompt's token ids without start and end tokens, cut to the encoder's length; one empty chunk for ""."""
        tokens = self._model.tokenizers[encoder](prompt, add_special_tokens=False, verbose=False)["input_ids"]
        length = self._model.description.text_length - 2
        return [tokens[start : start + length] for start in range(0, len(tokens), length)] or [[]]

    def chunks_of(self, *prompts: str) -> int:
        """How many chunks hold each of these prompts, whichever the text encoder."""
        encoders = range(len(self._model.tokenizers))
        return max(len(self.chunks(prompt, encoder)) for prompt in prompts for encoder in encoders)

    def tokens(self, prompt: str, chunks: int, encoder: int = 0) -> torch.Tensor:
        """Token ids and attention mask of each chunk, int64 [chunks, 2, text length], start and end tokens included.

        `chunks` may exceed what the prompt fills; the rest are empty chunks, so that prompt and negative prompt match.
        """
        pieces = self.chunks(prompt, encoder)
        pieces += [[]] * (chunks - len(pieces))
        return torch.tensor([self._framed(piece, encoder) for piece in pieces], device=self._model.device)

    async def encode(
        self,
        call: Call,
        prompt: str,
        tokens: torch.Tensor,
        kind: str,
        encoder: int = 0,
        adapters: Adapters = NO_ADAPTERS,
    ) -> EncodedPrompt:
        """Each chunk of `tokens` encoded alone, then joined along the tokens: [1, chunks * text length, width].

        `call` runs the text encoder with a plan of this kind. The pooled embedding is the first chunk's.
        """
        part = self._model.text_encoders[encoder].folder
        key = encoder, prompt, len(tokens), kind, adapters.origin(part)
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        encoded = [await call((ids[None], mask[None], *adapters.inputs(part))) for ids, mask in tokens]
        pooled = None
        if encoded[0].shape[1] > self._model.description.text_length:  # the row after the tokens
            pooled = encoded[0][:, -1]
            encoded = [piece[:, :-1] for piece in encoded]
        self._kept[key] = EncodedPrompt(torch.cat(encoded, dim=1), pooled)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    async def encode_batch(
        self,
        call: Call,
        prompts: Sequence[str],
        tokens: torch.Tensor,
        kind: str,
        encoder: int = 0,
        adapters: Adapters = NO_ADAPTERS,
    ) -> EncodedPrompt:
        """The negative prompt and the prompt, or the prompt alone, of which `tokens` are [B, chunks, 2, text length].

        An empty negative prompt is encoded like any other, or is zeros where the model was trained so.
        """
        positive = await self.encode(call, prompts[-1], tokens[-1], kind, encoder, adapters)
        if len(prompts) == 1:
            return positive
        if self._model.description.zeros_for_empty_prompt and not prompts[0].strip():
            return positive.zeros().followed_by(positive)
        negative = await self.encode(call, prompts[0], tokens[0], kind, encoder, adapters)
        return negative.followed_by(positive)

    def _framed(self, tokens: list[int], encoder: int) -> list[list[int]]:
        model, tokenizer = self._model, self._model.tokenizers[encoder]
        length = model.description.text_length
        start = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
        whole = [start, *tokens, end]
        padding = length - len(whole)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
        mask = [1] * len(whole) + [0 if model.uses_attention_mask else 1] * padding
        return [whole + [pad] * padding, mask]

    def forget(self) -> None:
        """Drop every kept embedding."""
        self._kept.clear()
