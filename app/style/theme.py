"""The scheme in use: the system's, followed live, or the one the user fixed."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from app.settings.settings import Theme
from app.style import tokens as schemes
from app.style.sheet import palette, style_sheet
from app.style.tokens import Tokens
from app.style.type import body_font

_FIXED = {
    Theme.SYSTEM: Qt.ColorScheme.Unknown,
    Theme.LIGHT: Qt.ColorScheme.Light,
    Theme.DARK: Qt.ColorScheme.Dark,
}


def system_scheme() -> Qt.ColorScheme:
    """What the desktop asks for; Unknown where it doesn't say."""
    return QGuiApplication.styleHints().colorScheme()


class Appearance(QObject):
    """Dresses the application. `changed` follows every change of scheme, for those who paint by themselves.

    A system that names no scheme gets the dark one: pictures are judged best in the dark.
    """

    changed = Signal()

    def __init__(self, application: QApplication) -> None:
        super().__init__(application)
        self._application = application
        self._theme = Theme.SYSTEM
        self.tokens = schemes.DARK
        application.setStyle("Fusion")
        application.setFont(body_font())
        application.setEffectEnabled(Qt.UIEffect.UI_AnimateCombo, False)
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._follow)

    def use(self, theme: Theme) -> None:
        self._theme = theme
        QGuiApplication.styleHints().setColorScheme(_FIXED[theme])
        self._dress(self._wanted())

    def _wanted(self) -> Tokens:
        scheme = _FIXED[self._theme]
        if scheme is Qt.ColorScheme.Unknown:
            scheme = system_scheme()
        return schemes.LIGHT if scheme is Qt.ColorScheme.Light else schemes.DARK

    def _follow(self) -> None:
        if (wanted := self._wanted()) != self.tokens:
            self._dress(wanted)

    def _dress(self, tokens: Tokens) -> None:
        self.tokens = tokens
        self._application.setPalette(palette(tokens))
        self._application.setStyleSheet(style_sheet(tokens))
        self.changed.emit()
