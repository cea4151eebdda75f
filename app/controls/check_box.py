"""A box to tick."""

from __future__ import annotations

from PySide6.QtGui import QPainter, QPaintEvent
from PySide6.QtWidgets import QCheckBox, QStyle, QStyleOptionButton, QWidget

from app.style.icons import pixmap
from app.style.theme import Appearance

_TICK = 12


class CheckBox(QCheckBox):
    """Ticked, it is filled, with the tick in the panel's colour; the style sheet draws the rest."""

    def __init__(self, appearance: Appearance, title: str, parent: QWidget | None = None) -> None:
        super().__init__(title, parent)
        self._appearance = appearance
        appearance.changed.connect(self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self.isChecked():
            return
        option = QStyleOptionButton()
        self.initStyleOption(option)
        box = self.style().subElementRect(QStyle.SubElement.SE_CheckBoxIndicator, option, self)
        painter = QPainter(self)
        tick = pixmap("check", self._appearance.tokens.panel, _TICK, self.devicePixelRatioF())
        painter.drawPixmap(box.center().x() - _TICK // 2 + 1, box.center().y() - _TICK // 2 + 1, tick)
        painter.end()
