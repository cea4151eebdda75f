"""The palette and the style sheet, built from the tokens."""

from __future__ import annotations

from string import Template

from PySide6.QtGui import QColor, QPalette

from app.style.tokens import CONTROL_HEIGHT, CORNER, LABEL, Tokens


def palette(tokens: Tokens) -> QPalette:
    """What Fusion draws with; the sheet below only adds what a palette can't say."""
    made = QPalette()
    role, group = QPalette.ColorRole, QPalette.ColorGroup
    for which, colour in (
        (role.Window, tokens.panel),
        (role.WindowText, tokens.text),
        (role.Base, tokens.raised),
        (role.AlternateBase, tokens.panel),
        (role.Text, tokens.text),
        (role.PlaceholderText, tokens.muted),
        (role.Button, tokens.raised),
        (role.ButtonText, tokens.text),
        (role.BrightText, tokens.text),
        (role.ToolTipBase, tokens.raised),
        (role.ToolTipText, tokens.text),
        (role.Highlight, tokens.accent),
        (role.HighlightedText, tokens.on_accent),
        (role.Accent, tokens.accent),
        (role.Link, tokens.accent),
        (role.Light, tokens.hover),
        (role.Midlight, tokens.raised),
        (role.Mid, tokens.line),
        (role.Dark, tokens.line),
        (role.Shadow, tokens.ground),
    ):
        made.setColor(which, QColor(colour))
    for which in (role.Text, role.WindowText, role.ButtonText):
        made.setColor(group.Disabled, which, QColor(tokens.strong_line))
    return made


def style_sheet(tokens: Tokens) -> str:
    inner = CONTROL_HEIGHT - 2
    values = {name: value for name, value in vars(tokens).items() if isinstance(value, str)}
    return Template(_SHEET).substitute(values, inner=inner, corner=CORNER, label=LABEL, primary=38)


_SHEET = """
QToolTip { background: $raised; color: $text; border: 1px solid $line; padding: 4px 6px; font-size: ${label}px; }

#column, #statusLine, #strip { background: $panel; }
#columnPage, #columnScroll, #scrolled, #scroll { background: transparent; border: none; }
#canvas { background: $ground; }

QLabel[role="label"] { color: $muted; font-size: ${label}px; }
QLabel[role="note"] { color: $muted; font-size: ${label}px; }
QLabel[role="correction"] { color: $warn; font-size: ${label}px; }
QLabel[role="status"] { color: $muted; font-size: ${label}px; }
QLabel[role="heading"] { font-size: 20px; font-weight: 600; }
QLabel[role="section"] { font-weight: 600; }
QLabel[role="key"] {
    background: $raised; border: 1px solid $line; border-radius: 4px; padding: 2px 7px; font-size: ${label}px;
}

QLineEdit, QAbstractSpinBox, QPlainTextEdit, QComboBox {
    background: $raised; color: $text; border: 1px solid $line; border-radius: ${corner}px;
    selection-background-color: $accent; selection-color: $on_accent; placeholder-text-color: $muted;
}
QLineEdit { min-height: ${inner}px; max-height: ${inner}px; padding: 0 8px; }
QAbstractSpinBox { min-height: ${inner}px; max-height: ${inner}px; padding: 0; }
QPlainTextEdit { padding: 3px 4px; }
QComboBox { min-height: ${inner}px; max-height: ${inner}px; padding: 0 8px; }
QLineEdit:hover, QAbstractSpinBox:hover, QPlainTextEdit:hover, QComboBox:hover { border-color: $strong_line; }
QAbstractSpinBox:focus { border: 2px solid $accent; padding: 0; min-height: 28px; max-height: 28px; }
QLineEdit:focus, QComboBox:focus, QComboBox:on {
    border: 2px solid $accent; padding: 0 7px; min-height: 28px; max-height: 28px;
}
QPlainTextEdit:focus { border: 2px solid $accent; padding: 2px 3px; }
QAbstractSpinBox QLineEdit, QAbstractSpinBox QLineEdit:focus {
    border: none; background: transparent; padding: 0; min-height: 20px;
}
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { width: 0; border: none; subcontrol-origin: border; }
QComboBox::drop-down { border: none; width: 24px; }
QComboBox QAbstractItemView {
    background: $raised; border: 1px solid $line; outline: none; padding: 4px;
    selection-background-color: $hover; selection-color: $text;
}
QComboBox QAbstractItemView::item { min-height: 26px; padding: 0 6px; border-radius: 4px; }
QComboBox QAbstractItemView::item:selected { background: $hover; }
QComboBox QAbstractItemView::item:disabled { color: $strong_line; }

QPushButton {
    background: $raised; color: $text; border: 1px solid $line; border-radius: ${corner}px;
    min-height: ${inner}px; max-height: ${inner}px; padding: 0 12px;
}
QPushButton:hover { background: $hover; border-color: $strong_line; }
QPushButton:pressed { background: $line; }
QPushButton:focus { border: 2px solid $accent; padding: 0 11px; min-height: 28px; max-height: 28px; }
QPushButton:disabled { color: $strong_line; }
QPushButton#generate { min-height: ${primary}px; max-height: ${primary}px; font-weight: 600; }
QPushButton#generate:focus { min-height: 36px; max-height: 36px; }
QPushButton#generate[running="false"] { background: $accent; color: $on_accent; border-color: $accent; }
QPushButton#generate[running="false"]:hover { background: $accent_hover; border-color: $accent_hover; }
QPushButton#generate[running="false"]:focus { border: 2px solid $text; }
QPushButton#example { padding: 0 16px; }
QPushButton#fold {
    background: transparent; border: 2px solid transparent; border-radius: 4px; text-align: left; color: $muted;
    font-size: ${label}px; padding: 0 4px 0 0; min-height: 20px; max-height: 20px;
}
QPushButton#fold:hover { color: $text; }
QPushButton#fold:focus { border-color: $accent; }

QToolButton { background: transparent; border: none; border-radius: ${corner}px; padding: 0; }
QToolButton:hover { background: $hover; }
QToolButton:focus { border: 2px solid $accent; }
QToolButton[framed="true"] { background: $raised; border: 1px solid $line; }
QToolButton[framed="true"]:hover { background: $hover; border-color: $strong_line; }
QToolButton[framed="true"]:checked { background: $hover; border-color: $strong_line; }
QToolButton[framed="true"]:focus { border: 2px solid $accent; }

QSlider { min-height: 20px; max-height: 20px; background: transparent; }
QSlider::groove:horizontal { height: 4px; border-radius: 2px; background: $line; }
QSlider::sub-page:horizontal { height: 4px; border-radius: 2px; background: $muted; }
QSlider::handle:horizontal {
    width: 14px; height: 14px; margin: -5px 0; border-radius: 7px; background: $text; border: none;
}
QSlider::handle:horizontal:focus {
    width: 14px; height: 14px; margin: -7px -2px; border: 2px solid $accent; border-radius: 9px;
}

QCheckBox { spacing: 8px; min-height: 30px; outline: none; }
QCheckBox::indicator {
    width: 16px; height: 16px; background: $raised; border: 1px solid $strong_line; border-radius: 4px;
}
QCheckBox::indicator:hover { background: $hover; }
QCheckBox::indicator:checked { background: $text; border-color: $text; }
QCheckBox::indicator:focus { border: 2px solid $accent; width: 14px; height: 14px; }

#notice { background: $raised; border: 1px solid $line; border-radius: ${corner}px; }
#notice[kind="bad"] { border-color: $bad; }
#notice[kind="warn"] { border-color: $warn; }

QListView { background: transparent; border: none; outline: none; }
QScrollBar:vertical { background: transparent; width: 10px; margin: 2px; }
QScrollBar:horizontal { background: transparent; height: 10px; margin: 2px; }
QScrollBar::handle { background: $line; border-radius: 3px; }
QScrollBar::handle:vertical { min-height: 32px; }
QScrollBar::handle:horizontal { min-width: 32px; }
QScrollBar::handle:hover { background: $strong_line; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }

QSplitter::handle { background: $line; }
QFrame[role="hairline"] { background: $line; border: none; }
QDialog { background: $panel; }
"""
