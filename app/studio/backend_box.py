"""The list of backends; those that can't be used on this computer are greyed out, with the reason."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QWidget

from app.controls.choice_box import ChoiceBox
from app.style.theme import Appearance
from engine.request import Backend


class BackendBox(ChoiceBox):
    """`chosen` carries a backend that a person chose."""

    chosen = Signal(object)

    def __init__(self, appearance: Appearance, name: str, tip: str, parent: QWidget | None = None) -> None:
        super().__init__(appearance, name, tip, parent)
        names = {
            Backend.AUTO: self.tr("Auto"),
            Backend.EAGER: self.tr("Eager"),
            Backend.OPENVINO: "OpenVINO",
            Backend.INDUCTOR: "torch.compile",
        }
        self._items = {backend: QStandardItem(names[backend]) for backend in Backend}
        items = QStandardItemModel(self)
        for item in self._items.values():
            items.appendRow(item)
        self.setModel(items)
        self.activated.connect(lambda row: self.chosen.emit(list(self._items)[row]))

    def show_backend(self, backend: Backend) -> None:
        self.setCurrentIndex(list(self._items).index(backend))

    def show_unavailable(self, reasons: Mapping[Backend, str]) -> None:
        """Grey out the backends named, each with its sentence; the others can be chosen."""
        for backend, item in self._items.items():
            reason = reasons.get(backend, "")
            item.setEnabled(not reason)
            item.setToolTip(reason)
            item.setData(reason, Qt.ItemDataRole.AccessibleDescriptionRole)
