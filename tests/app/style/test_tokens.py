from __future__ import annotations

import pytest

from app.style.tokens import DARK, LIGHT, Tokens, contrast

BOTH = pytest.mark.parametrize("tokens", [DARK, LIGHT], ids=["dark", "light"])


def test_contrast_is_the_standard_s() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@BOTH
@pytest.mark.parametrize("ground", ["panel", "raised", "ground"])
def test_body_text_can_be_read_well(tokens: Tokens, ground: str) -> None:
    assert contrast(tokens.text, getattr(tokens, ground)) >= 7


@BOTH
@pytest.mark.parametrize("colour", ["muted", "accent", "ok", "warn", "bad"])
def test_everything_else_can_be_read(tokens: Tokens, colour: str) -> None:
    assert contrast(getattr(tokens, colour), tokens.panel) >= 4.5


@BOTH
def test_text_on_the_accent_can_be_read(tokens: Tokens) -> None:
    assert contrast(tokens.on_accent, tokens.accent) >= 4.5
    assert contrast(tokens.on_accent, tokens.accent_hover) >= 4.5


@BOTH
def test_outlines_of_what_can_be_operated_are_visible(tokens: Tokens) -> None:
    assert contrast(tokens.strong_line, tokens.panel) >= 3


@BOTH
def test_the_ground_around_the_picture_is_neutral(tokens: Tokens) -> None:
    channels = [int(tokens.ground[at : at + 2], 16) for at in (1, 3, 5)]
    assert max(channels) - min(channels) <= 4
