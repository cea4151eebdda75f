"""Which of the two colour schemes to use."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication

from app.style.tokens import DARK, LIGHT, Tokens

FIXED = {"light": Qt.ColorScheme.Light, "dark": Qt.ColorScheme.Dark}


def system_scheme() -> Qt.ColorScheme:
    """What the desktop asks for; Unknown where it doesn't say."""
    return QGuiApplication.styleHints().colorScheme()


def tokens_for(theme: str) -> Tokens:
    """The colours for a theme by name: "light", "dark", or anything else for the system's.

    A system that names no scheme gets the dark one: pictures are judged best in the dark.
    """
    scheme = FIXED.get(theme) or system_scheme()
    return LIGHT if scheme is Qt.ColorScheme.Light else DARK
