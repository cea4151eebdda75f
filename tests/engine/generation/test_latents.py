"""A seed means the same noise everywhere, and numbers stay numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import NonFiniteLatents
from engine.request import MAX_SEED

pytestmark = pytest.mark.usefixtures("torch_imported")


@given(seed=st.integers(0, MAX_SEED))
def test_noise_is_the_seed_s(seed: int) -> None:
    import torch

    from engine.generation.latents import initial_noise

    noise, generator = initial_noise(seed, 4, 6, 8)
    again, _ = initial_noise(seed, 4, 6, 8)
    assert (noise.shape, noise.dtype, noise.device.type) == ((1, 4, 6, 8), torch.float32, "cpu")
    assert torch.equal(noise, again)
    # what the sampler draws next is the generator's next, as in diffusers' pipelines
    expected = torch.Generator("cpu").manual_seed(seed)
    torch.randn((1, 4, 6, 8), generator=expected)
    assert torch.equal(torch.randn(3, generator=generator), torch.randn(3, generator=expected))


def test_finite_numbers_pass() -> None:
    import torch

    from engine.generation.latents import check_finite

    check_finite(torch.full((2, 3), 3e38), "Step 1 of 2")


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_others_are_counted(bad: float) -> None:
    import torch

    from engine.generation.latents import check_finite

    values = torch.zeros(1, 4, 32, 32)
    values.view(-1)[:1234] = bad
    with pytest.raises(NonFiniteLatents) as raised:
        check_finite(values, "The decoded picture")
    assert str(raised.value) == "The decoded picture: 1,234 of 4,096 values are not finite numbers."
