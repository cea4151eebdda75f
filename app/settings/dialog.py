"""The settings dialog, built from the declaration: it knows kinds of settings, and no setting by name."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any, get_args

from pydantic.fields import FieldInfo
from PySide6.QtCore import QCoreApplication, Qt
from PySide6.QtWidgets import (
    QCheckBox,
    QDialog,
    QFrame,
    QGridLayout,
    QLabel,
    QPushButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from app.controls.check_box import CheckBox
from app.controls.choice_box import ChoiceBox
from app.settings.folder_field import FolderField
from app.settings.settings import CONTEXT, Settings
from app.settings.store import SettingsStore
from app.style.theme import Appearance
from app.style.tokens import GRID, HALF

_LABELS = 128
_CONTROLS = 288
_TITLE_BAR = 40


def _translated(text: str | None) -> str:
    return QCoreApplication.translate(CONTEXT, text or "")


def _extra(field: FieldInfo) -> dict[str, Any]:
    return field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}


class SettingsDialog(QDialog):
    """Every change counts at once; there is nothing to confirm. Not modal: the run and the window go on beside it."""

    def __init__(self, store: SettingsStore, appearance: Appearance, usual_folder: Path, parent: QWidget) -> None:
        super().__init__(parent)
        self._store = store
        self._appearance = appearance
        self._usual_folder = usual_folder
        self.controls: dict[str, QWidget] = {}
        self.setWindowTitle(self.tr("Settings"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        heading = QLabel(self.tr("Settings"))
        heading.setProperty("role", "heading")
        column = QVBoxLayout(self)
        column.setContentsMargins(3 * GRID, 3 * GRID, 3 * GRID, 3 * GRID)
        column.setSpacing(2 * GRID)
        column.addWidget(heading)
        page = QWidget()
        page.setObjectName("scrolled")
        sections = QVBoxLayout(page)
        sections.setContentsMargins(0, 0, 0, 0)
        sections.setSpacing(2 * GRID)
        fields = Settings.model_fields.items()
        for title, members in groupby(fields, key=lambda item: str(_extra(item[1]).get("page", ""))):
            section = QLabel(_translated(title))
            section.setProperty("role", "section")
            sections.addWidget(section)
            sections.addLayout(self._section(list(members)))
            sections.addSpacing(HALF)
        sections.addStretch(1)
        scroll = QScrollArea()
        scroll.setObjectName("scroll")
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(page)
        column.addWidget(scroll, 1)
        close = QPushButton(self.tr("Close"))
        close.setAccessibleName(close.text())
        close.setToolTip(self.tr("Settings are kept as you change them"))
        close.clicked.connect(self.close)
        close.setAutoDefault(False)
        column.addWidget(close, 0, Qt.AlignmentFlag.AlignRight)
        self._take_size(column, scroll, page)
        next(iter(self.controls.values())).setFocus()

    def _take_size(self, column: QVBoxLayout, scroll: QScrollArea, page: QWidget) -> None:
        """As high as everything in it, where the screen has room; with a scroll bar where it hasn't."""
        self.ensurePolished()
        width = page.minimumSizeHint().width() + scroll.verticalScrollBar().sizeHint().width()
        scroll.setMinimumWidth(width)
        around = column.sizeHint().height() - scroll.sizeHint().height()
        room = self.screen().availableGeometry().height() - _TITLE_BAR
        margins = column.contentsMargins()
        self.resize(width + margins.left() + margins.right(), min(around + page.heightForWidth(width), room))

    def _section(self, members: list[tuple[str, FieldInfo]]) -> QGridLayout:
        grid = QGridLayout()
        grid.setHorizontalSpacing(2 * GRID)
        grid.setVerticalSpacing(HALF)
        grid.setColumnMinimumWidth(0, _LABELS)
        grid.setColumnMinimumWidth(1, _CONTROLS)
        grid.setColumnStretch(1, 1)
        for at, (name, field) in enumerate(members):
            title = _translated(field.title)
            explanation = QLabel(_translated(field.description), wordWrap=True)
            explanation.setProperty("role", "note")
            control = self._control(name, field, title, explanation)
            self.controls[name] = control
            focused = control.focusProxy() or control
            focused.setAccessibleName(title)
            focused.setAccessibleDescription(explanation.text())
            focused.setToolTip(explanation.text())
            row = 3 * at
            if not isinstance(control, QCheckBox):
                label = QLabel(title)
                label.setBuddy(focused)
                grid.addWidget(label, row, 0)
            grid.addWidget(control, row, 1)
            grid.addWidget(explanation, row + 1, 1)
            grid.setRowMinimumHeight(row + 2, GRID if at + 1 < len(members) else 0)
        return grid

    def _control(self, name: str, field: FieldInfo, title: str, explanation: QLabel) -> QWidget:
        value = getattr(self._store.current, name)
        choices: dict[Any, str] = _extra(field).get("choices") or {}
        if choices:
            return self._choice(name, value, title, choices)
        if field.annotation is bool:
            return self._switch(name, value, title)
        if Path in (field.annotation, *get_args(field.annotation)):
            return FolderField(self._store, name, value, self._usual_folder, explanation)
        raise TypeError(f"the settings dialog has no control for {name}")

    def _choice(self, name: str, value: Any, title: str, choices: dict[Any, str]) -> QWidget:
        box = ChoiceBox(self._appearance, title, "")
        values = list(choices)
        for words in choices.values():
            box.addItem(_translated(words))
        box.setCurrentIndex(values.index(value))
        box.activated.connect(lambda row: self._store.change(**{name: values[row]}))
        return box

    def _switch(self, name: str, value: bool, title: str) -> QWidget:
        box = CheckBox(self._appearance, title)
        box.setChecked(value)
        box.toggled.connect(lambda on: self._store.change(**{name: on}))
        return box
