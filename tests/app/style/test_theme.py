from __future__ import annotations

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.settings.settings import Theme
from app.style import icons
from app.style.theme import Appearance
from app.style.tokens import DARK, LIGHT


def test_a_fixed_theme_dresses_the_whole_application(qapp: QApplication, appearance: Appearance) -> None:
    for theme, tokens in ((Theme.LIGHT, LIGHT), (Theme.DARK, DARK)):
        appearance.use(theme)
        assert appearance.tokens is tokens
        assert qapp.palette().color(QPalette.ColorRole.Window).name().upper() == tokens.panel
        assert tokens.accent in qapp.styleSheet()


def test_those_who_paint_by_themselves_are_told(qtbot: QtBot, appearance: Appearance) -> None:
    with qtbot.waitSignal(appearance.changed):
        appearance.use(Theme.LIGHT)


def test_the_system_s_scheme_is_followed_live(appearance: Appearance, monkeypatch: pytest.MonkeyPatch) -> None:
    appearance.use(Theme.SYSTEM)
    for scheme, tokens in ((Qt.ColorScheme.Light, LIGHT), (Qt.ColorScheme.Dark, DARK)):
        monkeypatch.setattr("app.style.scheme.system_scheme", lambda scheme=scheme: scheme)
        QGuiApplication.styleHints().colorSchemeChanged.emit(scheme)
        assert appearance.tokens is tokens


def test_a_fixed_theme_stays_when_the_system_s_changes(appearance: Appearance, monkeypatch: pytest.MonkeyPatch) -> None:
    appearance.use(Theme.LIGHT)
    monkeypatch.setattr("app.style.scheme.system_scheme", lambda: Qt.ColorScheme.Dark)
    QGuiApplication.styleHints().colorSchemeChanged.emit(Qt.ColorScheme.Dark)
    assert appearance.tokens is LIGHT


def test_a_system_that_names_no_scheme_gets_the_dark_one(
    appearance: Appearance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.style.scheme.system_scheme", lambda: Qt.ColorScheme.Unknown)
    appearance.use(Theme.SYSTEM)
    assert appearance.tokens is DARK


def test_no_placeholder_is_left_in_the_style_sheet(qapp: QApplication, appearance: Appearance) -> None:
    assert "$" not in qapp.styleSheet()


def test_icons_are_sharp_at_every_scale(qapp: QApplication) -> None:
    for scale in (1.0, 1.5, 2.0):
        drawn = icons.pixmap("dice", "#FFFFFF", scale=scale)
        assert drawn.width() == round(16 * scale)
        assert drawn.devicePixelRatio() == scale


def test_every_icon_draws_something(qapp: QApplication) -> None:
    for name in icons._SHAPES:
        image = icons.pixmap(name, "#FFFFFF").toImage()
        assert any(image.pixelColor(x, y).alpha() for x in range(16) for y in range(16)), name
