"""The scheme in use: the system's, followed live, or the one the user fixed."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from app.settings.settings import Theme
from app.style import tokens as schemes
from app.style.scheme import FIXED, tokens_for
from app.style.sheet import palette, style_sheet
from app.style.tokens import Tokens
from app.style.type import body_font


class Appearance(QObject):
    """Dresses the application, whose style is Fusion.

    `changed` follows every change of scheme, and a screen that is plugged in, for those who paint by themselves.
    """

    changed = Signal()

    def __init__(self, application: QApplication) -> None:
        super().__init__(application)
        self._application = application
        self._theme = Theme.SYSTEM
        self.tokens = schemes.DARK
        application.setFont(body_font())
        application.setEffectEnabled(Qt.UIEffect.UI_AnimateCombo, False)
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._follow)
        application.screenAdded.connect(lambda: self.changed.emit())

    def use(self, theme: Theme) -> None:
        self._theme = theme
        QGuiApplication.styleHints().setColorScheme(FIXED.get(theme, Qt.ColorScheme.Unknown))
        self._dress(tokens_for(theme))

    def _follow(self) -> None:
        if (wanted := tokens_for(self._theme)) != self.tokens:
            self._dress(wanted)

    def _dress(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._application.setPalette(palette(tokens))
        self._application.setStyleSheet(style_sheet(tokens))
        self.changed.emit()
