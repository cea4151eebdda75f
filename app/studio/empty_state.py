"""The canvas before the first picture: one example, as a button that makes it at once."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QPushButton, QVBoxLayout, QWidget

from app.style.icons import pixmap
from app.style.theme import Appearance
from app.style.tokens import GRID

_LAMP = 40


class EmptyState(QWidget):
    """`chosen` carries the example's prompt."""

    chosen = Signal(str)

    def __init__(self, appearance: Appearance, example: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._appearance = appearance
        self._lamp = QLabel()
        heading = QLabel(self.tr("Describe a picture"))
        heading.setProperty("role", "heading")
        caption = QLabel(self.tr("or begin with this one") if example else "")
        caption.setProperty("role", "label")
        self.button = QPushButton(example)
        self.button.setObjectName("example")
        self.button.setAccessibleName(self.tr("Make the example: {prompt}").format(prompt=example))
        self.button.setToolTip(self.tr("Makes this picture"))
        if not example:
            self.button.hide()  # never shown from here: without a parent yet, it would be a window of its own
        column = QVBoxLayout(self)
        column.addStretch(1)
        centre = Qt.AlignmentFlag.AlignHCenter
        column.addWidget(self._lamp, 0, centre)
        column.addSpacing(GRID)
        column.addWidget(heading, 0, centre)
        column.addWidget(caption, 0, centre)
        column.addSpacing(GRID)
        column.addWidget(self.button, 0, centre)
        column.addStretch(1)
        self.button.clicked.connect(lambda: self.chosen.emit(example))
        appearance.changed.connect(self._draw)
        self._draw()

    def _draw(self) -> None:
        tokens = self._appearance.tokens
        self._lamp.setPixmap(pixmap("lamp", tokens.strong_line, _LAMP, self.devicePixelRatioF()))
