"""A chain runs its hosts one into the next: nothing is copied between them, and each has its own plans and version."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import HostClosed, OperationCancelled, PlanFailed
from engine.hosts.chain import Arrange, Call, ChainedCompiledModelHost, Stage, handed_on_first
from engine.hosts.host import CompiledModelHost
from engine.plans.plan import EAGER, OPENVINO_STATIC, Plan, Signature

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.usefixtures("torch_imported")


class ModulePlan:
    """Runs a torch module here and now, and keeps what went in and came out."""

    def __init__(self, kind: str, module: Callable[..., torch.Tensor]) -> None:
        self.kind = kind
        self.is_alive = True
        self.fails = False
        self.inputs: list[Sequence[torch.Tensor]] = []
        self.outputs: list[torch.Tensor] = []
        self._module = module

    def execute(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        import torch

        token.raise_if_cancelled()
        assert self.is_alive
        if self.fails:
            raise PlanFailed("It broke.")
        with torch.inference_mode():
            answer = self._module(*inputs)
        self.inputs.append(inputs)
        self.outputs.append(answer)
        return answer

    async def execute_async(
        self, inputs: Sequence[torch.Tensor], token: CancellationToken = CancellationToken.none
    ) -> torch.Tensor:
        await asyncio.sleep(0)
        return self.execute(inputs, token)

    def close(self) -> None:
        self.is_alive = False


@dataclass
class Part:
    """One stage of a chain under test: its host, its eager plan, and the plans that were built."""

    module: Callable[..., torch.Tensor]
    arrange: Arrange = handed_on_first

    def __post_init__(self) -> None:
        self.plans: list[ModulePlan] = []
        self.host = CompiledModelHost("stage", self._build, build_on_demand=True)
        self.eager = ModulePlan(EAGER, self.module)
        self.stage = Stage(self.eager, self.arrange)
        self.version = 0

    def _build(self, signature: Signature, token: CancellationToken) -> Future[Plan]:
        self.plans.append(ModulePlan(OPENVINO_STATIC, self.module))
        future: Future[Plan] = Future()
        future.set_result(self.plans[-1])
        return future


class Setting:
    """A chain of parts, asked in one of the two ways."""

    def __init__(self, sync: bool) -> None:
        self._sync = sync
        self.parts: list[Part] = []

    def of(self, *parts: Part) -> Setting:
        self.parts = list(parts)
        self.chain = ChainedCompiledModelHost([part.host for part in parts])
        return self

    def predict(self, x: torch.Tensor, side: Any = None, token: CancellationToken = CancellationToken.none) -> Any:
        versions, stages = [part.version for part in self.parts], [part.stage for part in self.parts]
        if self._sync:
            return self.chain.predict(x, versions, stages, token, side)
        return asyncio.run(self.chain.predict_async(x, versions, stages, token, side))

    @property
    def built(self) -> list[int]:
        return [part.host.counters.plans_built for part in self.parts]

    @property
    def eager_answers(self) -> list[int]:
        return [part.host.counters.eager_answers for part in self.parts]


@pytest.fixture(params=["sync", "async"])
def setting(request: pytest.FixtureRequest) -> Setting:
    return Setting(request.param == "sync")


def text_to_picture(setting: Setting) -> tuple[Setting, torch.Tensor, list[tuple[torch.Tensor, ...]], torch.Tensor]:
    """Text encoder -> noise predictor -> VAE decoder; the latents and the timestep come in from the side.

    Returns the chain, token ids, side inputs, and what the modules give without one.
    """
    import torch
    from torch import nn

    torch.manual_seed(0)

    class Predictor(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, kdim=16, vdim=16, batch_first=True)

        def forward(self, latents: torch.Tensor, timestep: torch.Tensor, prompt: torch.Tensor) -> torch.Tensor:
            tokens = latents.flatten(2).transpose(1, 2) + timestep
            answer: torch.Tensor = self.attention(tokens, prompt, prompt, need_weights=False)[0]
            return answer.transpose(1, 2).reshape(latents.shape)

    text, unet, vae = nn.Embedding(20, 16).eval(), Predictor().eval(), nn.ConvTranspose2d(8, 3, 2, 2).eval()
    ids, latents, timestep = torch.tensor([[1, 5, 7]]), torch.randn(1, 8, 4, 4), torch.tensor(0.5)
    with torch.inference_mode():
        expected = vae(unet(latents, timestep, text(ids)))
    parts = Part(text), Part(unet, lambda prompt, side: (*side, prompt)), Part(vae)
    return setting.of(*parts), ids, [(), (latents, timestep), ()], expected


def picture_to_text(setting: Setting) -> tuple[Setting, torch.Tensor, list[tuple[torch.Tensor, ...]], torch.Tensor]:
    """Vision encoder -> text decoder, which attends to the picture's patches; the token ids come in from the side."""
    import torch
    from torch import nn

    torch.manual_seed(1)

    class Decoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 16)
            self.layer = nn.TransformerDecoderLayer(16, 2, 32, dropout=0, batch_first=True)

        def forward(self, patches: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            answer: torch.Tensor = self.layer(self.embedding(ids), patches)
            return answer

    def patches_of(features: torch.Tensor, side: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        return (features.flatten(2).transpose(1, 2), *side)

    vision, decoder = nn.Conv2d(3, 16, 4, 4).eval(), Decoder().eval()
    picture, ids = torch.randn(2, 3, 16, 16), torch.tensor([[1, 5, 7], [2, 3, 4]])
    with torch.inference_mode():
        expected = decoder(vision(picture).flatten(2).transpose(1, 2), ids)
    return setting.of(Part(vision), Part(decoder, patches_of)), picture, [(), (ids,)], expected


@pytest.mark.parametrize("topology", [text_to_picture, picture_to_text])
def test_a_chain_gives_what_its_modules_give_eagerly_and_by_plans(
    setting: Setting, topology: Callable[[Setting], Any]
) -> None:
    import torch

    asked, x, side, expected = topology(setting)
    stages = len(asked.parts)
    assert torch.equal(asked.predict(x, side), expected)
    assert (asked.eager_answers, asked.built) == ([1] * stages, [1] * stages)
    for _ in range(2):
        assert torch.equal(asked.predict(x, side), expected)
    assert asked.eager_answers == [1] * stages
    assert [part.host.counters.fast_hits for part in asked.parts] == [1] * stages


@pytest.mark.parametrize("topology", [text_to_picture, picture_to_text])
def test_outputs_are_handed_on_without_a_copy(setting: Setting, topology: Callable[[Setting], Any]) -> None:
    asked, x, side, _ = topology(setting)
    for _ in range(2):
        asked.predict(x, side)
    for before, after in zip(asked.parts, asked.parts[1:], strict=False):
        for given, taken in ((before.eager, after.eager), (before.plans[0], after.plans[0])):
            storages = {tensor.untyped_storage().data_ptr() for tensor in taken.inputs[0]}
            assert given.outputs[0].untyped_storage().data_ptr() in storages


def test_an_output_that_needs_no_arranging_is_the_next_input_itself(setting: Setting) -> None:
    import torch

    asked = setting.of(Part(lambda x: x + 1), Part(lambda x, y: x * y))
    side = torch.tensor([3.0])
    assert asked.predict(torch.tensor([1.0]), [(), (side,)]).item() == 6
    first, second = asked.parts
    assert second.eager.inputs[0][0] is first.eager.outputs[0]
    assert second.eager.inputs[0][1] is side


def three(setting: Setting) -> Setting:
    return setting.of(Part(lambda x: x + 1), Part(lambda x: x * 2), Part(lambda x: x - 3))


def test_raising_one_stage_s_version_drops_that_stage_s_plans_alone(setting: Setting) -> None:
    import torch

    asked, x = three(setting), torch.tensor([1.0])
    for _ in range(2):
        assert asked.predict(x).item() == 1
    asked.parts[1].version += 1
    assert asked.predict(x).item() == 1
    assert [part.plans[0].is_alive for part in asked.parts] == [True, False, True]
    assert asked.predict(x).item() == 1
    assert (asked.built, asked.eager_answers) == ([1, 2, 1], [1, 2, 1])


def test_a_stage_whose_plan_breaks_is_answered_eagerly_and_the_others_go_on(setting: Setting) -> None:
    import torch

    asked, x = three(setting), torch.tensor([1.0])
    asked.predict(x)
    asked.parts[1].plans[0].fails = True
    for _ in range(2):
        assert asked.predict(x).item() == 1
    assert [part.host.counters.poisoned for part in asked.parts] == [0, 1, 0]
    assert asked.eager_answers == [1, 3, 1]


@pytest.mark.parametrize("wrong", [0, 2, 4])
@pytest.mark.parametrize("what", ["versions", "stages", "sets of side inputs"])
def test_counts_that_do_not_fit_are_refused_before_any_work(setting: Setting, what: str, wrong: int) -> None:
    import torch

    asked, x = three(setting), torch.tensor([1.0])
    stages = [part.stage for part in asked.parts]
    versions, side = [0] * 3, [()] * 3
    given: dict[str, Any] = {"versions": versions, "stages": stages, "sets of side inputs": side}
    given[what] = (given[what] * 2)[:wrong]
    arguments = (x, given["versions"], given["stages"], CancellationToken.none, given["sets of side inputs"])
    with pytest.raises(ValueError, match=rf"^The chain has 3 stages, and {wrong} {what} were given\.$"):
        asked.chain.predict(*arguments)
    with pytest.raises(ValueError, match="The chain has 3 stages"):
        asyncio.run(asked.chain.predict_async(*arguments))
    assert asked.eager_answers == [0, 0, 0]


def test_a_chain_needs_a_host() -> None:
    with pytest.raises(ValueError, match="at least one host"):
        ChainedCompiledModelHost([])


def test_a_cancelled_token_is_seen_before_and_between_stages(setting: Setting) -> None:
    import torch

    token = CancellationToken()

    def cancel(x: torch.Tensor) -> torch.Tensor:
        token.cancel("Enough.")
        return x

    asked = setting.of(Part(lambda x: x), Part(cancel), Part(lambda x: x))
    for answers in ([1, 1, 0], [1, 1, 0]):  # the second call isn't begun
        with pytest.raises(OperationCancelled, match="Enough"):
            asked.predict(torch.zeros(1), token=token)
        assert asked.eager_answers == answers


def test_closing_a_chain_closes_every_stage_and_it_refuses_further_calls(setting: Setting) -> None:
    import torch

    asked, x = three(setting), torch.tensor([1.0])
    asked.predict(x)
    asked.chain.close()
    asked.chain.close()
    assert not any(part.plans[0].is_alive for part in asked.parts)
    with pytest.raises(HostClosed):
        asked.predict(x)
    for part in asked.parts:
        with pytest.raises(HostClosed):
            part.host.ready(Signature.of((x,)), 0)


def test_every_stage_is_closed_although_closing_one_fails(caplog: pytest.LogCaptureFixture) -> None:
    import torch

    asked, x = three(Setting(True)), torch.tensor([1.0])
    asked.predict(x)

    def refuse() -> None:
        raise OSError("The plan's process can't be ended.")

    asked.parts[1].plans[0].close = refuse  # type: ignore[method-assign]
    asked.chain.close()
    assert [part.plans[0].is_alive for part in asked.parts] == [False, True, False]
    assert "can't be ended" in caplog.text


async def test_a_driven_stage_calls_its_host_as_often_as_it_needs_and_hands_on_what_it_returns() -> None:
    import torch

    first, loop, last = Part(lambda x: x + 1), Part(lambda x: 2 * x), Part(lambda x: x - 3)
    chain = ChainedCompiledModelHost([first.host, loop.host, last.host])
    handed: list[torch.Tensor] = []

    async def thrice(call: Call, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        (x,) = inputs
        handed.append(x)
        for _ in range(3):
            x = await call((x,))
        return x

    stages = [first.stage, Stage(loop.eager, drive=thrice), last.stage]
    answer = await chain.predict_async(torch.ones(2), (0, 0, 0), stages)
    assert torch.equal(answer, torch.full((2,), 13.0))
    assert [part.host.counters.slow_calls + part.host.counters.fast_hits for part in (first, loop, last)] == [1, 3, 1]
    assert handed[0] is first.eager.outputs[-1]  # without a copy
    with pytest.raises(ValueError, match="predict_async"):
        chain.predict(torch.ones(2), (0, 0, 0), stages)


async def test_a_version_is_looked_at_when_its_stage_begins() -> None:
    import torch

    versions = [0, 0]
    first, second = Part(lambda x: x + 1), Part(lambda x: 2 * x)
    chain = ChainedCompiledModelHost([first.host, second.host])
    await chain.predict_async(torch.ones(2), versions, [first.stage, second.stage])

    async def raising(call: Call, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        versions[1] = 1
        return await call(inputs)

    (before,) = second.plans
    await chain.predict_async(torch.ones(2), versions, [Stage(first.eager, drive=raising), second.stage])
    assert not before.is_alive
