"""The keys, listed."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QDialog, QGridLayout, QLabel, QVBoxLayout, QWidget

from app.shortcuts import KEYS
from app.style.tokens import GRID


class KeysDialog(QDialog):
    """Not modal: it can stay open beside the work."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(self.tr("Keys"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        heading = QLabel(self.tr("Keys"))
        heading.setProperty("role", "heading")
        grid = QGridLayout()
        grid.setHorizontalSpacing(3 * GRID)
        grid.setVerticalSpacing(GRID)
        for row, (command, keys) in enumerate(KEYS.items()):
            key = QLabel(QKeySequence(keys).toString(QKeySequence.SequenceFormat.NativeText))
            key.setProperty("role", "key")
            grid.addWidget(QLabel(command.words), row, 0)
            grid.addWidget(key, row, 1, Qt.AlignmentFlag.AlignRight)
        column = QVBoxLayout(self)
        column.setContentsMargins(3 * GRID, 3 * GRID, 3 * GRID, 3 * GRID)
        column.setSpacing(2 * GRID)
        column.addWidget(heading)
        column.addLayout(grid)
