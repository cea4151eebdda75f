"""Prompts to embeddings: in chunks of the encoder's length, so that a long prompt is encoded in full, and kept."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

import torch

from engine.cancellation import CancellationToken
from engine.lora.adapters import NO_ADAPTERS, Adapters
from engine.models.components import Component
from engine.models.model import Model

KEPT = 64  # embeddings of prompts; some hundred kilobytes each at most


class PromptEncoder:
    """Encodes prompts with a model's text encoder and keeps the embeddings of the last prompts.

    What is kept belongs to the kind of plan and to the LoRAs that made it, so that a picture has the same bits whether
    its prompt was encoded for it or kept.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self._kept: OrderedDict[Hashable, torch.Tensor] = OrderedDict()

    def chunks(self, prompt: str) -> list[list[int]]:
        """The prompt's token ids without start and end tokens, cut to the encoder's length; one empty chunk for ""."""
        tokens = self._model.tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"]
        length = self._model.description.text_length - 2
        return [tokens[start : start + length] for start in range(0, len(tokens), length)] or [[]]

    async def encode(
        self, prompt: str, chunks: int, kind: str, token: CancellationToken, adapters: Adapters = NO_ADAPTERS
    ) -> torch.Tensor:
        """Embeddings [1, chunks * text length, width]: each chunk encoded alone, then joined along the tokens.

        `kind` is the kind of plan that encodes. `chunks` may exceed what the prompt fills; the rest are empty chunks,
        so that prompt and negative prompt match.
        """
        part = Component.TEXT_ENCODER
        key = (prompt, chunks, kind, adapters.origin(part.folder))
        if (kept := self._kept.get(key)) is not None:
            self._kept.move_to_end(key)
            return kept
        pieces = self.chunks(prompt)
        pieces += [[]] * (chunks - len(pieces))
        encoder, added = self._model.runner(part, adapters.layers(part.folder)), adapters.inputs(part.folder)
        encoded = [await encoder.run((*self._inputs(piece), *added), kind, token) for piece in pieces]
        embeddings = torch.cat(encoded, dim=1)
        self._kept[key] = embeddings
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return embeddings

    def _inputs(self, tokens: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        model = self._model
        tokenizer, length = model.tokenizer, model.description.text_length
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
