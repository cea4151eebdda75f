"""A setting that names a folder: typed or chosen, and tried before it counts."""

from __future__ import annotations

import asyncio
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QLineEdit, QPushButton, QWidget
from shiboken6 import isValid

from app import folders
from app.settings.store import SettingsStore
from app.style.tokens import GRID


class FolderField(QWidget):
    """`note` explains the setting; where a folder can't be used it says why instead, and the setting stays as it was.

    An emptied line stands for `usual`. Needs a running loop: trying a folder may take long on a network drive.
    """

    def __init__(
        self, store: SettingsStore, name: str, value: Path | None, usual: Path, note: QLabel,
        parent: QWidget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(parent)
        self._store, self._name, self._usual, self._note = store, name, usual, note
        self._explanation = note.text()
        self._asked: Path | None = value or usual
        self._trial: asyncio.Task[None] | None = None
        self._line = QLineEdit(str(value or usual))
        choose = QPushButton(self.tr("Choose…"))
        choose.setAccessibleName(self.tr("Choose a folder"))
        choose.setToolTip(choose.accessibleName())
        choose.setAutoDefault(False)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(GRID)
        row.addWidget(self._line, 1)
        row.addWidget(choose)
        self.setFocusProxy(self._line)
        self._line.editingFinished.connect(lambda: self._take(self._line.text()))
        choose.clicked.connect(self._ask)

    def _ask(self) -> None:
        dialog = QFileDialog(self, self.tr("Output folder"), self._line.text())
        dialog.setFileMode(QFileDialog.FileMode.Directory)
        dialog.setOption(QFileDialog.Option.ShowDirsOnly)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(self._take)
        dialog.open()

    def _take(self, text: str) -> None:
        folder = _whole(text) if text.strip() else self._usual
        self._line.setText(str(folder))
        if folder == self._asked:  # Return, and then the focus leaves
            return
        self._asked = folder
        if self._trial is not None:
            self._trial.cancel()
        self._trial = asyncio.get_running_loop().create_task(self._try(folder))

    async def _try(self, folder: Path) -> None:
        reason = None
        if folder != self._usual:  # which is made where it is missing
            reason = await asyncio.to_thread(folders.why_unwritable, folder)
        if reason is None:
            self._store.change(**{self._name: None if folder == self._usual else folder})
        if isValid(self._note):  # the dialog may have been closed meanwhile
            self._say(reason)

    def _say(self, reason: str | None) -> None:
        words = self._explanation
        if reason is not None:
            kept = getattr(self._store.current, self._name) or self._usual
            words = self.tr("{reason}. {folder} is still used.").format(
                reason=reason[:1].upper() + reason[1:], folder=kept
            )
        self._note.setText(words)
        self._line.setAccessibleDescription(words)
        self._note.setProperty("role", "note" if reason is None else "correction")
        self._note.style().unpolish(self._note)
        self._note.style().polish(self._note)


def _whole(text: str) -> Path:
    path = Path(text)
    try:
        return path.expanduser().absolute()
    except RuntimeError:  # the home of a user who isn't there
        return path.absolute()
