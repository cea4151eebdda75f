"""A list to choose one thing from."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QPainter, QPaintEvent, QWheelEvent
from PySide6.QtWidgets import QComboBox, QStyledItemDelegate, QWidget

from app.style.icons import SIZE, pixmap
from app.style.theme import Appearance
from app.style.tokens import GRID


class ChoiceBox(QComboBox):
    """A combo box that leaves the wheel to the column around it unless it has focus."""

    def __init__(self, appearance: Appearance, name: str, tip: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self.setAccessibleName(name)
        self.setToolTip(tip)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(8)
        # a combo box's own delegate draws its rows past the style sheet
        self.setItemDelegate(QStyledItemDelegate(self))
        appearance.changed.connect(self.update)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        tokens = self._appearance.tokens
        painter = QPainter(self)
        chevron = pixmap("down", tokens.muted if self.isEnabled() else tokens.line, scale=self.devicePixelRatioF())
        painter.drawPixmap(self.width() - SIZE - GRID, (self.height() - SIZE) // 2, chevron)
        painter.end()
