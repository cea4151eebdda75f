"""What became of an entry, beside its field's label: there is always room for it, so nothing moves when it appears."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from app.controls.number_field import NumberField, SliderField


class Correction(QLabel):
    """Shows what `field` says of an entry that couldn't be taken as it was, and tells it to a screen reader too."""

    def __init__(self, field: NumberField | SliderField, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("role", "correction")
        self.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        field.corrected.connect(self._show)

    def _show(self, words: str) -> None:
        if words == self.text():
            return
        self.setText(words)
        if words:
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, words))
