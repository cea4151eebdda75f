"""The list of samplers; those that the model can't use are greyed out, with the reason."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QWidget

from app.controls.choice_box import ChoiceBox
from app.style.theme import Appearance
from engine.models.description import ModelDescription
from engine.request import Sampler


class SamplerBox(ChoiceBox):
    """`chosen` carries a sampler that a person chose."""

    chosen = Signal(object)

    def __init__(
        self,
        appearance: Appearance,
        name: str,
        tip: str,
        description: ModelDescription,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(appearance, name, tip, parent)
        self._samplers = list(Sampler)
        items = QStandardItemModel(self)
        for sampler in self._samplers:
            item = QStandardItem(str(sampler))
            if (reason := description.why_unusable(sampler)) is not None:
                item.setEnabled(False)
                item.setToolTip(reason)
                item.setData(reason, Qt.ItemDataRole.AccessibleDescriptionRole)
            items.appendRow(item)
        self.setModel(items)
        self.setMaxVisibleItems(len(self._samplers))
        self.activated.connect(lambda row: self.chosen.emit(self._samplers[row]))

    def show_sampler(self, sampler: Sampler) -> None:
        self.setCurrentIndex(self._samplers.index(sampler))
