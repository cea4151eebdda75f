"""Running parts of a model in tests, and watching what the hosts are asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.plans.plan import EAGER

if TYPE_CHECKING:
    from engine.generation.encoded_prompt import EncodedPrompt
    from engine.generation.prompt import PromptEncoder
    from engine.hosts.runner import Runner
    from engine.models.model import Model


async def encode(
    encoder: PromptEncoder,
    model: Model,
    prompts: str | Sequence[str],
    chunks: int,
    kind: str = EAGER,
    number: int = 0,
    adapters: Any = None,
    token: CancellationToken = CancellationToken.none,
) -> EncodedPrompt:
    """A prompt, or a batch of negative prompt and prompt, by one of the model's text encoders."""
    import torch

    from engine.lora.adapters import NO_ADAPTERS

    adapters = adapters or NO_ADAPTERS
    component = model.text_encoders[number]
    runner = model.runner(component, adapters.layers(component.folder))

    async def call(inputs: Sequence[Any]) -> Any:
        return await runner.run(inputs, kind, token)

    if isinstance(prompts, str):
        return await encoder.encode(call, prompts, encoder.tokens(prompts, chunks, number), kind, number, adapters)
    tokens = torch.stack([encoder.tokens(prompt, chunks, number) for prompt in prompts])
    return await encoder.encode_batch(call, prompts, tokens, kind, number, adapters)


def watch(
    runner: Runner, monkeypatch: pytest.MonkeyPatch, heard: Callable[[Sequence[Any]], None], kind: str = EAGER
) -> None:
    """Have `heard` told the inputs of every call of a runner's host, before it answers."""
    host = runner.host(kind)
    predict = host.predict_async

    async def watched(inputs: Sequence[Any], *rest: Any, **named: Any) -> Any:
        heard(inputs)
        return await predict(inputs, *rest, **named)

    monkeypatch.setattr(host, "predict_async", watched)
