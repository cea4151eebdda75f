"""The box that a prompt is typed into."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QMimeData, Qt, Signal
from PySide6.QtGui import QKeyEvent, QTextCursor
from PySide6.QtWidgets import QPlainTextEdit, QWidget

from app.plain_text import plain
from engine.request import MAX_PROMPT


class PromptEditor(QPlainTextEdit):
    """Plain text that grows from `least` to `most` lines with what is in it. Tab moves on.

    `edited` carries the text after a person changed it, never one that was set.
    """

    edited = Signal(str)

    def __init__(self, name: str, least: int, most: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._least, self._most = least, most
        self._setting = False
        self.setAccessibleName(name)
        self.setTabChangesFocus(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(4)
        self.textChanged.connect(self._text_changed)
        self.document().documentLayout().documentSizeChanged.connect(self._fit)
        self._fit()

    def show_text(self, text: str) -> None:
        """Set without telling `edited`, as an edit that Ctrl+Z takes back."""
        if text == self.toPlainText():
            return
        self._setting = True
        cursor = self.textCursor()
        cursor.select(QTextCursor.SelectionType.Document)
        cursor.insertText(text)
        self._setting = False

    def insertFromMimeData(self, source: QMimeData) -> None:
        """What is pasted or dropped, as plain text; no more of it than any prompt can hold."""
        self.insertPlainText(plain(source.text()[:MAX_PROMPT]))

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() in (QEvent.Type.FontChange, QEvent.Type.StyleChange):
            self._fit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        # Ctrl+Return is Generate's: the editor would otherwise break the line as well
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and event.modifiers() & (
            Qt.KeyboardModifier.ControlModifier
        ):
            event.ignore()
            return
        super().keyPressEvent(event)

    def _text_changed(self) -> None:
        text = self.toPlainText()
        if len(text) > MAX_PROMPT:
            self.show_text(text[:MAX_PROMPT])
            text = text[:MAX_PROMPT]
        if not self._setting:
            self.edited.emit(text)

    def _fit(self) -> None:
        lines = round(self.document().size().height())
        shown = min(max(lines, self._least), self._most)
        margins = 2 * round(self.document().documentMargin()) + 8
        self.setFixedHeight(shown * self.fontMetrics().lineSpacing() + margins)
        more = lines > self._most
        self.setVerticalScrollBarPolicy(
            Qt.ScrollBarPolicy.ScrollBarAsNeeded if more else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        )
