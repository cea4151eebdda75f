"""The LoRAs of the next picture, each with its strength."""

from __future__ import annotations

from pathlib import Path, PurePath

from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.controls.icon_button import IconButton
from app.controls.number_field import SliderField
from app.studio.form import Form
from app.style.theme import Appearance
from app.style.tokens import GRID, HALF
from engine.request import MAX_LORAS, LoraUse

_SMALL = 20  # side of the buttons, logical px
_SLIDER, _FIELD, _STEP = (-1, 2), (-10, 10), 0.05


class LoraList(QWidget):
    """A heading with a button that adds LoRAs, and a row for each: name, button that removes it, strength."""

    def __init__(self, form: Form, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._form = form
        self._appearance = appearance
        self.rows: list[_Row] = []
        self.add_button = IconButton(appearance, "plus", self.tr("Add a LoRA"), side=_SMALL)
        self.add_button.setToolTip(self.tr("Add LoRAs from .safetensors files; they can be dropped on the window too."))
        title = QLabel(self.tr("LoRAs"))
        title.setProperty("role", "label")
        heading = QHBoxLayout()
        heading.addWidget(title, 1)
        heading.addWidget(self.add_button)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(HALF)
        self._column.addLayout(heading)
        self.add_button.clicked.connect(self.choose)
        form.loras_changed.connect(self._show)
        self._show(form.loras)

    def choose(self) -> QFileDialog:
        """Ask for files, starting where the last LoRA lies."""
        folder = str(Path(self._form.loras[-1].file).parent) if self._form.loras else ""
        dialog = QFileDialog(self, self.tr("Add LoRAs"), folder, self.tr("LoRAs (*.safetensors)"))
        dialog.setFileMode(QFileDialog.FileMode.ExistingFiles)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.filesSelected.connect(self._add)
        dialog.open()
        return dialog

    def _add(self, files: list[str]) -> None:
        for file in files:
            self._form.add_lora(Path(file))

    def _show(self, loras: tuple[LoraUse, ...]) -> None:
        if [row.file for row in self.rows] != [use.file for use in loras]:
            self._make_rows(loras)
        for row, use in zip(self.rows, loras, strict=True):
            row.strength.show_value(use.strength)
        self.add_button.setEnabled(len(loras) < MAX_LORAS)

    def _make_rows(self, loras: tuple[LoraUse, ...]) -> None:
        had_focus = any(row.isAncestorOf(focus) for row in self.rows if (focus := self.window().focusWidget()))
        for row in self.rows:
            self._column.removeWidget(row)
            row.hide()
            row.deleteLater()
        self.rows = [_Row(use.file, self._appearance) for use in loras]
        for at, row in enumerate(self.rows):
            self._column.addWidget(row)
            row.strength.edited.connect(lambda strength, at=at: self._form.set_lora_strength(at, strength))
            row.remove_button.clicked.connect(lambda _=False, at=at: self._form.remove_lora(at))
        if had_focus:
            (self.rows[-1].remove_button if self.rows else self.add_button).setFocus()


class _Row(QWidget):
    def __init__(self, file: str, appearance: Appearance) -> None:
        super().__init__()
        self.file = file
        self._name = PurePath(file).stem
        self._label = QLabel()
        self._label.setToolTip(file)
        self._label.setAccessibleName(self._name)
        self._label.setMinimumWidth(1)  # what doesn't fit is cut, not stretching the column
        self.remove_button = IconButton(
            appearance, "close", self.tr("Remove {name}").format(name=self._name), side=_SMALL
        )
        self.strength = SliderField(
            self.tr("Strength of {name}").format(name=self._name),
            self.tr("1 is as it was trained, 0 without it, below 0 the contrary."),
            *_FIELD, _STEP, decimals=2,
        )  # fmt: skip
        self.strength.set_slider_range(*_SLIDER, _STEP)
        heading = QHBoxLayout()
        heading.setSpacing(GRID)
        heading.addWidget(self._label, 1)
        heading.addWidget(self.remove_button)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(heading)
        column.addWidget(self.strength)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._cut()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._cut()

    def _cut(self) -> None:
        room = self.width() - _SMALL - GRID
        text = self._label.fontMetrics().elidedText(self._name, Qt.TextElideMode.ElideMiddle, room)
        self._label.setText(text)
