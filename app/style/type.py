"""Type: the system's font, in three sizes, with figures of one width so that nothing jiggles while counting."""

from __future__ import annotations

from PySide6.QtGui import QFont, QFontDatabase

from app.style.tokens import BODY


def body_font() -> QFont:
    return sized(BODY)


def sized(pixels: int, weight: QFont.Weight = QFont.Weight.Normal) -> QFont:
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    font.setPixelSize(pixels)
    font.setWeight(weight)
    font.setFeature(QFont.Tag("tnum"), 1)
    return font
