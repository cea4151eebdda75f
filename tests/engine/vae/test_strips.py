"""Convolutions and attention by strips compute what they computed whole, and can be stopped between two strips."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.cancellation import CancellationToken
from engine.errors import OperationCancelled
from tests.engine.tiny_model import VAE

if TYPE_CHECKING:
    import torch

pytestmark = pytest.mark.usefixtures("torch_imported")


@pytest.fixture(autouse=True)
def tiny_strips(monkeypatch: pytest.MonkeyPatch, torch_imported: None) -> None:
    """The least strips there are: eight rows of a convolution, 64 queries of an attention."""
    from engine.vae import strips

    monkeypatch.setattr(strips, "STRIP_WORK", 1)


class Checkpoints:
    def __init__(self, stop_at: int | None = None) -> None:
        self.asked = 0
        self._stop_at = stop_at
        self._token = CancellationToken()

    def __call__(self) -> None:
        self.asked += 1
        if self.asked == self._stop_at:
            self._token.cancel("Enough.")
        self._token.raise_if_cancelled()


def relative_error(answer: torch.Tensor, expected: torch.Tensor) -> float:
    assert answer.shape == expected.shape
    return ((answer - expected).abs().max() / expected.abs().max().clamp(min=1e-3)).item()


@given(
    height=st.integers(1, 70),
    width=st.integers(1, 20),
    kernel=st.sampled_from([(1, 1), (3, 3), (5, 3)]),
    stride=st.sampled_from([1, 2, 3, (2, 1)]),
    padding=st.sampled_from([0, 1, 2, (1, 0), "same"]),
    dilation=st.sampled_from([1, 2]),
    bias=st.booleans(),
    channels_last=st.booleans(),
    batch=st.integers(1, 3),
)
@settings(deadline=None, max_examples=80)
def test_a_convolution_by_strips_is_the_whole_one(
    height: int, width: int, kernel: Any, stride: Any, padding: Any, dilation: int, bias: bool, channels_last: bool,
    batch: int,
) -> None:  # fmt: skip
    import torch

    from engine.vae import strips

    if padding == "same":
        stride = 1
    convolution = torch.nn.Conv2d(3, 4, kernel, stride, padding, dilation, bias=bias)
    x = torch.randn(batch, 3, height, width)
    if channels_last:
        x = x.contiguous(memory_format=torch.channels_last)
    checkpoints = Checkpoints()
    by_strips = copy.deepcopy(convolution)
    strips.STRIP_WORK = 1
    strips.run_by_strips(by_strips, checkpoints)
    with torch.inference_mode():
        try:
            expected = convolution(x)
        except RuntimeError:  # the kernel is larger than the picture: by strips it is refused, too
            with pytest.raises(RuntimeError):
                by_strips(x)
            return
        answer = by_strips(x)
    assert relative_error(answer, expected) <= 1e-5
    assert answer.is_contiguous(memory_format=torch.channels_last) == expected.is_contiguous(
        memory_format=torch.channels_last
    )
    if padding != "same" and expected.shape[2] > 8:
        assert checkpoints.asked == -(-expected.shape[2] // 8)


@pytest.mark.parametrize("options", [{"groups": 2}, {"padding_mode": "reflect"}])
def test_convolutions_of_other_kinds_run_as_they_were(options: dict[str, Any]) -> None:
    import torch

    from engine.vae.strips import run_by_strips

    convolution = torch.nn.Conv2d(4, 4, 3, padding=1, **options)
    x, checkpoints = torch.randn(1, 4, 40, 40), Checkpoints()
    expected = convolution(x)
    run_by_strips(convolution, checkpoints)
    assert torch.equal(convolution(x), expected)
    assert checkpoints.asked == 0


def vae_and_copy(checkpoints: Checkpoints) -> tuple[Any, Any]:
    """A VAE, and the same one by strips."""
    import torch
    from diffusers import AutoencoderKL

    from engine.vae.strips import run_by_strips

    torch.manual_seed(0)
    whole = AutoencoderKL.from_config(VAE).eval()
    by_strips = copy.deepcopy(whole)
    run_by_strips(by_strips, checkpoints)
    return whole, by_strips


@pytest.mark.parametrize("side", [(64, 64), (36, 100), (126, 34)])
def test_a_vae_by_strips_encodes_and_decodes_the_same(side: tuple[int, int]) -> None:
    import torch

    whole, by_strips = vae_and_copy(Checkpoints())
    with torch.inference_mode():
        picture = torch.rand(1, 3, *side) * 2 - 1
        moments = whole.encode(picture, return_dict=False)[0].parameters
        assert relative_error(by_strips.encode(picture, return_dict=False)[0].parameters, moments) <= 1e-5
        latents = moments[:, :4]
        decoded = whole.decode(latents, return_dict=False)[0]
        assert relative_error(by_strips.decode(latents, return_dict=False)[0], decoded) <= 1e-5


def test_attention_by_blocks_is_the_whole_one() -> None:
    import torch

    checkpoints = Checkpoints()
    whole, by_strips = vae_and_copy(checkpoints)
    x = torch.randn(2, 16, 15, 17)
    with torch.inference_mode():
        expected = whole.decoder.mid_block.attentions[0](x)
        checkpoints.asked = 0
        assert relative_error(by_strips.decoder.mid_block.attentions[0](x), expected) <= 1e-5
    assert checkpoints.asked == 4  # 255 queries by 64


def test_a_decode_stops_at_the_strip_where_it_is_cancelled() -> None:
    import torch

    counting = Checkpoints()
    latents = torch.randn(1, 4, 20, 20)
    with torch.inference_mode():
        vae_and_copy(counting)[1].decode(latents)
    assert counting.asked > 40
    for stop_at in (1, 10, counting.asked):
        stopping = Checkpoints(stop_at)
        _, by_strips = vae_and_copy(stopping)
        with torch.inference_mode(), pytest.raises(OperationCancelled, match="Enough"):
            by_strips.decode(latents)
        assert stopping.asked == stop_at


def test_the_weights_are_untouched() -> None:
    import torch

    whole, by_strips = vae_and_copy(Checkpoints())
    ours, theirs = by_strips.state_dict(), whole.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
