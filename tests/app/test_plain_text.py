from __future__ import annotations

import pytest

from app.plain_text import plain


@pytest.mark.parametrize(
    ("pasted", "kept"),
    [
        ("a\x00 red\x1b apple\x7f\x9f", "a red apple"),
        ("one\r\ntwo\rthree\u2028four\u2029five\x0bsix", "one\ntwo\nthree\nfour\nfive\nsix"),
        ("tabs\tstay", "tabs\tstay"),
        ("\ufeffa mark of byte order", "a mark of byte order"),
        ("नमस्ते दुनिया 👩\u200d🎨 می\u200cخواهم \u200fא", "नमस्ते दुनिया 👩\u200d🎨 می\u200cخواهم \u200fא"),
    ],
)
def test_control_characters_go_and_letters_stay(pasted: str, kept: str) -> None:
    assert plain(pasted) == kept
    assert plain(kept) == kept
