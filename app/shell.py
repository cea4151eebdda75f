"""The window's frame: on the screen at once, where and how it was the last time, and filled as soon as that can be.
What is typed into it meanwhile is kept for the prompt.

Only Qt is imported here. What the window is made of takes several times as long to import as the frame to appear.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from PySide6.QtCore import QByteArray, QCoreApplication, QEvent, QRect, QTimer, Signal
from PySide6.QtGui import QCloseEvent, QColor, QGuiApplication, QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.style.scheme import tokens_for
from app.style.tokens import COLUMN_WIDTH, NARROW, STATUS_HEIGHT, STRIP_SIZE, Tokens

_FIRST_SIZE = 1280, 860


@dataclass(frozen=True)
class FirstLook:
    """The few remembered values that the empty frame needs; the names are those of the files that hold them."""

    theme: str = "system"
    geometry: str = ""
    column_width: int = COLUMN_WIDTH
    strip_size: int = STRIP_SIZE
    column_shown: bool = True
    strip_shown: bool = True

    @classmethod
    def read(cls, *files: Path) -> FirstLook:
        """From JSON files, as far as they can be read; whoever reads them in earnest says what is wrong with them."""
        found: dict[str, Any] = {}
        for file in files:
            try:
                loaded = json.loads(file.read_bytes())
            except (OSError, ValueError, RecursionError):
                continue
            if isinstance(loaded, dict):
                found |= loaded
        right = {f.name: found[f.name] for f in fields(cls) if type(found.get(f.name)) is type(f.default)}
        return cls(**right)


class Shell(QWidget):
    """`painted` comes once, after the frame's first paint is on its way to the screen; `closed` when it is closed,
    which `may_close` can refuse.

    Empty, it shows the column, the canvas's ground, the strip and the status line as bare panels.
    """

    painted = Signal()
    closed = Signal()
    state_changed = Signal()

    def __init__(self, look: FirstLook) -> None:
        super().__init__()
        self._look = look
        self._content: QWidget | None = None
        self._painted = False
        self._typed: list[QKeyEvent] = []
        self.is_closed = False
        self.may_close: Callable[[], bool] = lambda: True
        self.setWindowTitle("Safelight")
        geometry = QByteArray.fromBase64(look.geometry.encode(errors="replace"))
        if geometry.isEmpty() or not self.restoreGeometry(geometry):
            room = QGuiApplication.primaryScreen().availableGeometry()
            self.resize(min(_FIRST_SIZE[0], room.width()), min(_FIRST_SIZE[1], room.height() - 40))

    def fill(self, content: QWidget) -> None:
        """Show `content` in the frame, and give it the focus."""
        self._content = content
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addWidget(content)
        content.show()
        content.setFocus()
        focused = self.focusWidget() or content
        for typed in self._typed:
            QCoreApplication.postEvent(focused, typed)
        self._typed.clear()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if self._content is None:
            self._typed.append(event.clone())
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:  # noqa: ARG002
        if self._content is None:
            painter = QPainter(self)
            self._paint_panels(painter, tokens_for(self._look.theme))
            painter.end()
        if not self._painted:
            self._painted = True
            # what is painted now is flushed to the screen before the loop gets to this
            QTimer.singleShot(0, self, self.painted.emit)

    def _paint_panels(self, painter: QPainter, tokens: Tokens) -> None:
        look, line = self._look, QColor(tokens.line)
        width, height = self.width(), self.height() - STATUS_HEIGHT - 1
        painter.fillRect(self.rect(), QColor(tokens.panel))
        left = look.column_width + 1 if look.column_shown else 0
        right, below = width, height
        if look.strip_shown and width < NARROW:
            below -= look.strip_size + 1
        elif look.strip_shown:
            right -= look.strip_size + 1
        painter.fillRect(QRect(left - 1, 0, width - left + 1, height), line)
        painter.fillRect(QRect(left, 0, right - left, below), QColor(tokens.ground))
        painter.fillRect(QRect(right + 1, 0, width - right, height), QColor(tokens.panel))
        if below < height:
            painter.fillRect(QRect(left, below + 1, width - left, height - below - 1), QColor(tokens.panel))
        painter.fillRect(QRect(0, height, width, 1), line)

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self.may_close():
            event.ignore()
            return
        event.accept()
        self.is_closed = True
        self.closed.emit()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.WindowStateChange:
            self.state_changed.emit()
