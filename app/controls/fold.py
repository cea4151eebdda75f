"""A heading that folds away what is under it."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from app.style.icons import icon
from app.style.theme import Appearance
from app.style.tokens import HALF


class Fold(QWidget):
    """Shows or hides `content`; `folded` tells when a person did it."""

    unfolded_changed = Signal(bool)

    def __init__(self, appearance: Appearance, title: str, content: QWidget, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._content = content
        self.button = QPushButton(title)
        self.button.setObjectName("fold")
        self.button.setCheckable(True)
        self.button.setAccessibleName(title)
        self.button.setIconSize(QSize(12, 12))
        self.button.setCursor(Qt.CursorShape.PointingHandCursor)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(HALF)
        column.addWidget(self.button, 0, Qt.AlignmentFlag.AlignLeft)
        column.addWidget(content)
        content.hide()
        self.button.toggled.connect(self._toggled)
        appearance.changed.connect(self._draw)
        self._draw()

    @property
    def unfolded(self) -> bool:
        return self.button.isChecked()

    def unfold(self, shown: bool = True) -> None:
        self.button.setChecked(shown)

    def _toggled(self, shown: bool) -> None:
        self._content.setVisible(shown)
        self.button.setAccessibleDescription(self.tr("Unfolded") if shown else self.tr("Folded"))
        self.unfolded_changed.emit(shown)

    def _draw(self) -> None:
        self.button.setIcon(icon("right", self._appearance.tokens, checked_name="down"))
