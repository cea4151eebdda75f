"""A field for a number, and a slider with such a field beside it."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QSignalBlocker, Qt, Signal
from PySide6.QtGui import QKeyEvent, QValidator, QWheelEvent
from PySide6.QtWidgets import QAbstractSpinBox, QDoubleSpinBox, QHBoxLayout, QSlider, QWidget

from app.controls.arithmetic import evaluate
from app.style.tokens import GRID, HALF

_LONG = 1e10  # from here on, a number that was typed is written short


class NumberField(QDoubleSpinBox):
    """Takes typing, arrows (Page up and down: ten steps), the wheel when it has focus, and maths such as `512*1.5`.

    What is typed counts when Return is pressed or the focus leaves; nonsense gives back the last value, and a value
    out of range the nearest in range. `edited` carries a value that a person entered, never one that was set.
    `corrected` says in words what became of an entry that couldn't be taken as it was, and "" once it is over.
    """

    edited = Signal(float)
    corrected = Signal(str)

    def __init__(
        self, low: float, high: float, step: float = 1, decimals: int = 0, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setDecimals(decimals)
        self.setRange(low, high)
        self.setSingleStep(step)
        self.setKeyboardTracking(False)
        self.setButtonSymbols(QAbstractSpinBox.ButtonSymbols.NoButtons)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        # the style sheet's padding stops at the frame; the editor inside keeps its own margins
        self.lineEdit().setTextMargins(GRID, 0, HALF, 0)
        self.valueChanged.connect(self.edited)
        self.lineEdit().textEdited.connect(lambda: self.corrected.emit(""))

    def show_value(self, value: float) -> None:
        """Set without telling `edited`."""
        if value != self.value():
            self.corrected.emit("")
        with QSignalBlocker(self):
            self.setValue(value)

    def textFromValue(self, value: float) -> str:
        text = f"{value:.{self.decimals()}f}"
        return text.rstrip("0").rstrip(".") if "." in text else text

    def valueFromText(self, text: str) -> float:
        try:
            value = evaluate(text)
        except ValueError:
            return self.value()
        value = math.floor(value + 0.5) if self.decimals() == 0 else value
        return min(max(value, self.minimum()), self.maximum())

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        try:
            value = evaluate(text)
        except ValueError:
            return QValidator.State.Intermediate, text, position
        in_range = self.minimum() <= value <= self.maximum()
        return (QValidator.State.Acceptable if in_range else QValidator.State.Intermediate), text, position

    def fixup(self, text: str) -> str:
        value = self.valueFromText(text)
        self.corrected.emit(self._correction(text, value))
        return self.textFromValue(value)

    def _correction(self, text: str, value: float) -> str:
        try:
            asked = evaluate(text)
        except ValueError:
            return self.tr("Not a number") if text.strip() else ""
        limit = self.tr("the smallest") if asked < value else self.tr("the largest")
        written = self.textFromValue(asked) if abs(asked) < _LONG else f"{asked:.3g}"
        return f"{written} → {self.textFromValue(value)}, {limit}"

    def stepBy(self, steps: int) -> None:
        self.corrected.emit("")
        super().stepBy(steps)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        super().keyPressEvent(event)
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.selectAll()


class _Slider(QSlider):
    """Scrolls with the wheel only when it has focus, so that the column can be scrolled past it."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        if self.hasFocus():
            super().wheelEvent(event)
        else:
            event.ignore()


class SliderField(QWidget):
    """A slider, and beside it the number field that says it exactly. The slider may end before the field does.

    `edited` carries a value that a person entered with either; `corrected` is the number field's.
    """

    edited = Signal(float)
    corrected = Signal(str)

    def __init__(
        self,
        name: str,
        tip: str,
        low: float,
        high: float,
        step: float = 1,
        decimals: int = 0,
        slider_high: float | None = None,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._low, self._step = low, step
        self.field = NumberField(low, high, step, decimals)
        self.field.setFixedWidth(72)
        self.slider = _Slider(Qt.Orientation.Horizontal)
        self.slider.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.set_slider_range(low, high if slider_high is None else slider_high, step)
        for control in (self.slider, self.field):
            control.setAccessibleName(name)
            control.setToolTip(tip)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(GRID + 4)
        row.addWidget(self.slider, 1)
        row.addWidget(self.field)
        self.field.edited.connect(self._field_edited)
        self.field.corrected.connect(self.corrected)
        self.slider.valueChanged.connect(self._slider_moved)

    def set_slider_range(self, low: float, high: float, step: float) -> None:
        self._low, self._step = low, step
        with QSignalBlocker(self.slider):
            self.slider.setRange(0, round((high - low) / step))
            self.slider.setPageStep(max(1, self.slider.maximum() // 8))

    def show_value(self, value: float) -> None:
        self.field.show_value(value)
        self._move_slider(value)

    def value(self) -> float:
        return self.field.value()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.EnabledChange:
            self.setFocusProxy(self.field)

    def _move_slider(self, value: float) -> None:
        with QSignalBlocker(self.slider):
            self.slider.setValue(round((value - self._low) / self._step))

    def _field_edited(self, value: float) -> None:
        self._move_slider(value)
        self.edited.emit(value)

    def _slider_moved(self, position: int) -> None:
        value = self._low + position * self._step
        self.field.show_value(value)
        self.edited.emit(value)
