"""One sentence and one action, where the eye already is, instead of a dialog."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QFrame, QGridLayout, QLabel, QPushButton, QSizePolicy, QWidget

from app.controls.icon_button import IconButton
from app.style.icons import pixmap
from app.style.theme import Appearance
from app.style.tokens import GRID, HALF


class NoticeBar(QFrame):
    """`kind` is "bad", "warn" or "note": an icon and a border say it as well as the words do."""

    acted = Signal()
    dismissed = Signal()

    def __init__(self, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("notice")
        self._appearance = appearance
        self._kind = "note"
        self._icon = QLabel()
        self._text = QLabel(wordWrap=True)
        self._text.setTextFormat(Qt.TextFormat.PlainText)
        self._text.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self._text.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self._text.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.MinimumExpanding)
        self.action = QPushButton()
        self.close_button = IconButton(appearance, "close", self.tr("Dismiss"), side=24)
        grid = QGridLayout(self)
        grid.setContentsMargins(GRID + HALF, GRID, GRID, GRID)
        grid.setHorizontalSpacing(GRID)
        grid.setVerticalSpacing(GRID)
        grid.setColumnStretch(1, 1)
        grid.addWidget(self._icon, 0, 0, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(self._text, 0, 1)
        grid.addWidget(self.close_button, 0, 2, Qt.AlignmentFlag.AlignTop)
        grid.addWidget(self.action, 1, 1, Qt.AlignmentFlag.AlignLeft)
        self._icon.setContentsMargins(0, 2, 0, 0)
        self.action.clicked.connect(self.acted)
        self.close_button.clicked.connect(self.dismissed)
        appearance.changed.connect(self._draw)
        self.hide()

    @property
    def sentence(self) -> str:
        return self._text.text()

    def say(self, kind: str, sentence: str, action: str = "") -> None:
        """Show a sentence, and tell it to a screen reader too."""
        self._kind = kind
        self._text.setText(sentence)
        self._text.setAccessibleName(sentence)
        self.action.setText(action)
        self.action.setAccessibleName(action)
        self.action.setVisible(bool(action))
        self.setProperty("kind", kind)
        self.style().unpolish(self)
        self.style().polish(self)
        self._draw()
        self.show()
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, sentence))

    def _draw(self) -> None:
        tokens = self._appearance.tokens
        colour = {"bad": tokens.bad, "warn": tokens.warn}.get(self._kind, tokens.muted)
        self._icon.setPixmap(pixmap(self._kind, colour, scale=self.devicePixelRatioF()))
