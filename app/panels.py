"""Where the column, the canvas and the strip lie, and how they fold."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSplitter, QWidget

from app.studio.strip import Strip
from app.style.tokens import COLUMN_RANGE, NARROW, STRIP_SIZE

_LEAST_MIDDLE = 200


class Panels(QSplitter):
    """The column on the left, the middle, and the strip: right of the middle, or below it in a narrow window."""

    def __init__(self, column: QWidget, middle: QWidget, strip: Strip, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._column, self._strip = column, strip
        self._right = QSplitter(Qt.Orientation.Horizontal)
        column.setMinimumWidth(COLUMN_RANGE[0])
        column.setMaximumWidth(COLUMN_RANGE[1])
        strip.setMinimumSize(STRIP_SIZE, STRIP_SIZE)
        for splitter, widgets in ((self._right, (middle, strip)), (self, (column, self._right))):
            splitter.setHandleWidth(1)
            splitter.setChildrenCollapsible(False)
            for widget in widgets:
                splitter.addWidget(widget)
        self._right.setStretchFactor(0, 1)
        self.setStretchFactor(1, 1)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        narrow = self.width() < NARROW
        wanted = Qt.Orientation.Vertical if narrow else Qt.Orientation.Horizontal
        if self._right.orientation() is not wanted:
            size = self.strip_size
            self._right.setOrientation(wanted)
            self._strip.lay_out(Qt.Orientation.Horizontal if narrow else Qt.Orientation.Vertical)
            self._set_strip_size(size)

    @property
    def column_width(self) -> int:
        return min(max(self._column.width(), COLUMN_RANGE[0]), COLUMN_RANGE[1])

    @property
    def strip_size(self) -> int:
        """The strip's width, or its height where it lies below."""
        return min(max(self._right.sizes()[1], STRIP_SIZE), 400)

    def set_sizes(self, column_width: int, strip_size: int) -> None:
        self.setSizes([column_width, max(_LEAST_MIDDLE, self.width() - column_width)])
        self._set_strip_size(strip_size)

    def _set_strip_size(self, size: int) -> None:
        upright = self._right.orientation() is Qt.Orientation.Vertical
        whole = self._right.height() if upright else self._right.width()
        self._right.setSizes([max(_LEAST_MIDDLE, whole - size), size])

    @property
    def shown(self) -> tuple[bool, bool]:
        """Whether the column and the strip are unfolded."""
        return not self._column.isHidden(), not self._strip.isHidden()

    def show_panels(self, column: bool, strip: bool) -> None:
        self._column.setVisible(column)
        self._strip.setVisible(strip)
