"""The colours and measures of the window, in one place.

`ground` is neutral so that it doesn't tint how a picture is judged. `accent` marks Generate, progress, selection and
focus, and nothing else. Contrast to panel: text at least 13:1, muted, ok, warn and bad at least 4.5:1 in both schemes.
"""

from __future__ import annotations

from dataclasses import dataclass

GRID = 8
HALF = 4
CONTROL_HEIGHT = 32
CORNER = 6
BODY = 13
LABEL = 12
HEADING = 20
CROSSFADE = 80  # ms
COLUMN_WIDTH = 320
COLUMN_RANGE = 288, 480
STRIP_SIZE = 112
STATUS_HEIGHT = 32
NARROW = 1040  # a window narrower than this has its strip below


@dataclass(frozen=True)
class Tokens:
    """One colour scheme, as #RRGGBB. `strong_line` outlines what can be operated (3:1 to panel); `hover`
    is raised, lit."""

    dark: bool
    ground: str
    panel: str
    raised: str
    hover: str
    line: str
    strong_line: str
    text: str
    muted: str
    accent: str
    accent_hover: str
    on_accent: str
    ok: str
    warn: str
    bad: str


DARK = Tokens(
    dark=True,
    ground="#17181A",
    panel="#1F2023",
    raised="#292B2F",
    hover="#32343A",
    line="#3A3C41",
    strong_line="#74767C",
    text="#ECEBE8",
    muted="#A3A19B",
    accent="#F0643C",
    accent_hover="#FF7A52",
    on_accent="#1B0D07",
    ok="#7CC48A",
    warn="#E8B54A",
    bad="#FF7A7A",
)
LIGHT = Tokens(
    dark=False,
    ground="#F4F3F0",
    panel="#FFFFFF",
    raised="#FAF9F7",
    hover="#F0EEEA",
    line="#D8D5CE",
    strong_line="#8F8B82",
    text="#1D1C1A",
    muted="#66635C",
    accent="#C2410C",
    accent_hover="#A93608",
    on_accent="#FFFFFF",
    ok="#2E7D43",
    warn="#8A5A00",
    bad="#B42318",
)


def contrast(one: str, other: str) -> float:
    """Contrast ratio of two colours, 1 to 21 (WCAG 2.2, https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
