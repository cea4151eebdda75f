"""Prompts to embeddings: in chunks of the encoder's length, so that a long prompt is encoded in full, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import TYPE_CHECKING

import torch

from engine.cancellation import CancellationToken
from engine.generation.encoded_prompt import EncodedPrompt
from engine.lora.adapters import NO_ADAPTERS, Adapters
from engine.models.model import Model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KEPT = 64  # embeddings of prompts; some hundred kilobytes each at most


class PromptEncoder:
    """Encodes prompts with a model's text encoders and keeps the embeddings of the last prompts.

    What is kept belongs to the kind of plan and to the LoRAs that made it, so that a picture has the same bits whether
    its prompt was encoded for it or kept.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._kept: OrderedDict[Hashable, EncodedPrompt] = OrderedDict()

    def chunks(self, prompt: str, encoder: int = 0) -> list[list[int]]:
        """The prompt's token ids without start and end tokens, cut to the encoder's length; one empty chunk for "".

        `encoder` counts the model's text encoders, of which each has its tokenizer.
        """
        tokens = self._model.tokenizers[encoder](prompt, add_special_tokens=False, verbose=False)["input_ids"]
        length = self._model.description.text_length - 2
        return [tokens[start : start + length] for start in range(0, len(tokens), length)] or [[]]

    def chunks_of(self, *prompts: str) -> int:
        """How many chunks hold each of these prompts, whichever the text encoder."""
        encoders = range(len(self._model.tokenizers))
        return max(len(self.chunks(prompt, encoder)) for prompt in prompts for encoder in encoders)

    async def encode(
        self, prompt: str, chunks: int, kind: str, token: CancellationToken, adapters: Adapters = NO_ADAPTERS
    ) -> EncodedPrompt:
        """Each chunk encoded alone, then joined along the tokens; two encoders' embeddings joined along their width.

        `kind` is the kind of plan that encodes. `chunks` may exceed what the prompt fills; the rest are empty chunks,
        so that prompt and negative prompt match. The pooled embedding is the first chunk's.
        """
        origins = tuple(adapters.origin(component.folder) for component in self._model.text_encoders)
        key = (prompt, chunks, kind, origins)
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        widths, pooled = [], None
        for number, (tokenizer, component) in enumerate(
            zip(self._model.tokenizers, self._model.text_encoders, strict=True)
        ):
            pieces = self.chunks(prompt, number)
            pieces += [[]] * (chunks - len(pieces))
            part = component.folder
            encoder, added = self._model.runner(component, adapters.layers(part)), adapters.inputs(part)
            encoded = [await encoder.run((*self._inputs(piece, tokenizer), *added), kind, token) for piece in pieces]
            if encoded[0].shape[1] > self._model.description.text_length:  # the row after the tokens
                pooled = encoded[0][:, -1]
                encoded = [piece[:, :-1] for piece in encoded]
            widths.append(torch.cat(encoded, dim=1))
        kept = self._kept[key] = EncodedPrompt(torch.cat(widths, dim=2), pooled)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return kept

    async def encode_with_negative(
        self,
        prompt: str,
        negative_prompt: str | None,
        chunks: int,
        kind: str,
        token: CancellationToken,
        adapters: Adapters = NO_ADAPTERS,
    ) -> EncodedPrompt:
        """The negative prompt and the prompt, a batch of two; the prompt alone where there is no negative prompt.

        An empty negative prompt is encoded like any other, or is zeros where the model was trained so.
        """
        positive = await self.encode(prompt, chunks, kind, token, adapters)
        if negative_prompt is None:
            return positive
        if self._model.description.zeros_for_empty_prompt and not negative_prompt.strip():
            return positive.zeros().followed_by(positive)
        return (await self.encode(negative_prompt, chunks, kind, token, adapters)).followed_by(positive)

    def _inputs(self, tokens: list[int], tokenizer: PreTrainedTokenizerBase) -> tuple[torch.Tensor, torch.Tensor]:
        model = self._model
        length = model.description.text_length
        start = tokenizer.cls_token_id if tokenizer.cls_token_id is not None else tokenizer.bos_token_id
        end = tokenizer.sep_token_id if tokenizer.sep_token_id is not None else tokenizer.eos_token_id
        whole = [start, *tokens, end]
        padding = length - len(whole)
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
        mask = [1] * len(whole) + [0 if model.uses_attention_mask else 1] * padding
        ids = torch.tensor([whole + [pad] * padding], dtype=torch.int64, device=model.device)
        return ids, torch.tensor([mask], dtype=torch.int64, device=model.device)

    def forget(self) -> None:
        """Drop every kept embedding."""
        self._kept.clear()
