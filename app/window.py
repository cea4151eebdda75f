"""The main window: column, canvas and strip, the keys, and what is remembered of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from PySide6.QtCore import QCoreApplication, QEvent, QMimeData, Qt, QTimer, Signal
from PySide6.QtGui import (
    QCloseEvent,
    QDragEnterEvent,
    QDropEvent,
    QGuiApplication,
    QKeySequence,
    QPaintEvent,
    QShortcut,
    QShowEvent,
)
from PySide6.QtWidgets import QFrame, QStackedWidget, QVBoxLayout, QWidget

from app.panels import Panels
from app.settings.remembered import Remembered
from app.settings.store import SettingsStore
from app.shortcuts import KEYS, Command
from app.studio.canvas import Canvas
from app.studio.empty_state import EmptyState
from app.studio.images import to_qimage
from app.studio.results import Result
from app.studio.status_line import StatusLine
from app.studio.strip import Strip
from app.studio.studio import Shown, Studio
from app.studio.view import Column
from app.style.theme import Appearance
from app.throttle import Throttle

_FRAME = 16  # ms


class Window(QWidget):
    """What fills the shell, or stands alone.

    `first_painted` comes once, after the first paint is on its way to the screen; `closed` when it is over.
    """

    first_painted = Signal()
    closed = Signal()

    def __init__(
        self,
        studio: Studio,
        store: SettingsStore,
        appearance: Appearance,
        usual_folder: Path,
        remembered: Remembered | None = None,
    ) -> None:
        super().__init__()
        self._studio = studio
        self._store = store
        self._appearance = appearance
        self._usual_folder = usual_folder
        self._tasks: set[asyncio.Task[Any]] = set()
        self._painted = False
        self._was_maximized = False
        self._folds = (True, True)
        self.setAcceptDrops(True)
        description = studio.form.description
        self.column = Column(studio, appearance)
        self.canvas = Canvas(appearance)
        self.empty = EmptyState(appearance, description.examples[0] if description.examples else "")
        self.strip = Strip(studio.results, appearance)
        self.status = StatusLine(appearance, description.name)
        self._lay_out()
        self._bind()
        self._add_keys()
        self._recall(remembered or Remembered())
        self.setFocusProxy(self.column.prompt)

    # Layout

    def _lay_out(self) -> None:
        self._middle = QStackedWidget()
        self._middle.addWidget(self.empty)
        self._middle.addWidget(self.canvas)
        self._middle.setObjectName("canvas")
        self._middle.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._panels = Panels(self.column, self._middle, self.strip)
        self._hairline = QFrame()
        self._hairline.setProperty("role", "hairline")
        self._hairline.setFixedHeight(1)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addWidget(self._panels, 1)
        whole.addWidget(self._hairline)
        whole.addWidget(self.status)
        self.setMinimumSize(720, 520)

    def fold_column(self) -> None:
        self.column.setHidden(not self.column.isHidden())

    def fold_strip(self) -> None:
        self.strip.setHidden(not self.strip.isHidden())

    # What is wired to what

    def _bind(self) -> None:
        studio, results = self._studio, self._studio.results
        # at most one picture and one line of numbers per frame, the newest; a throttle each, as they go apart
        self._show = Throttle(self._show_now, _FRAME, self)
        self._show_progress = Throttle(self._show_progress_now, _FRAME, self)
        studio.shown_changed.connect(self._show)
        studio.progress_changed.connect(self._show_progress)
        studio.running_changed.connect(self._show_middle)
        studio.activity_changed.connect(self.status.show_activity)
        studio.save_as_wanted.connect(self.save_as)
        self.empty.chosen.connect(studio.generate_example)
        self.canvas.copy_wanted.connect(self.copy)
        self.strip.chosen.connect(studio.choose)
        self.status.column_toggled.connect(self.fold_column)
        self.status.strip_toggled.connect(self.fold_strip)
        self.status.keys_wanted.connect(self.open_keys)
        self.status.settings_wanted.connect(self.open_settings)
        results.selected_changed.connect(self._show_title)

    def _show_now(self, shown: Shown | None) -> None:
        self._show_middle()
        self.canvas.show_picture(shown)

    def _show_middle(self) -> None:
        idle = self._studio.shown is None and not self._studio.running
        self._middle.setCurrentWidget(self.empty if idle else self.canvas)

    def _show_progress_now(self, progress: Any) -> None:
        self.status.show_progress(progress)
        self.canvas.show_progress(progress)

    def _show_title(self, result: Result | None) -> None:
        name = result.path.name if result is not None and result.path is not None else ""
        self.window().setWindowTitle(f"{name} – Safelight" if name else "Safelight")

    def _add_keys(self) -> None:
        studio, form = self._studio, self._studio.form
        actions: dict[Command, Callable[[], object]] = {
            Command.GENERATE: studio.generate,
            Command.CANCEL: self._escape,
            Command.NEW_SEED: form.draw_new_seed,
            Command.SWAP_SIDES: form.swap_sides,
            Command.PROMPT: self._go_to_prompt,
            Command.SAVE_AS: self.save_as,
            Command.FIT: self.canvas.fit,
            Command.ACTUAL_SIZE: self.canvas.actual_size,
            Command.FULL_SCREEN: self.toggle_full_screen,
            Command.PREVIOUS: lambda: studio.step_through_results(-1),
            Command.NEXT: lambda: studio.step_through_results(+1),
            Command.COLUMN: self.fold_column,
            Command.STRIP: self.fold_strip,
            Command.SETTINGS: self.open_settings,
            Command.KEYS: self.open_keys,
            Command.QUIT: lambda: self.window().close(),
        }
        for command, action in actions.items():
            shortcut = QShortcut(QKeySequence(KEYS[command]), self)
            shortcut.activated.connect(action)
        QShortcut(QKeySequence("Ctrl+Enter"), self).activated.connect(studio.generate)

    def _escape(self) -> None:
        if self._studio.running:
            self._studio.cancel()
        elif self.window().isFullScreen():
            self.toggle_full_screen()

    def _go_to_prompt(self) -> None:
        self.column.show()
        self.column.prompt.setFocus(Qt.FocusReason.ShortcutFocusReason)
        self.column.prompt.selectAll()

    def toggle_full_screen(self) -> None:
        """The canvas alone on the screen, and back to how it was."""
        top = self.window()
        if top.isFullScreen():
            self._leave_full_screen()
            top.showMaximized() if self._was_maximized else top.showNormal()
            return
        self._was_maximized = top.isMaximized()
        self._folds = self._panels.shown
        self._panels.show_panels(False, False)
        self.status.hide()
        self._hairline.hide()
        self.canvas.setFocus()
        top.showFullScreen()

    def _leave_full_screen(self) -> None:
        self._panels.show_panels(*self._folds)
        self.status.show()
        self._hairline.show()

    # Dialogs: imported when they are wanted; opened, never executed, as a nested loop would break the tasks that run

    def open_settings(self) -> None:
        from app.settings.dialog import SettingsDialog

        SettingsDialog(self._store, self._appearance, self._usual_folder, self).show()

    def open_keys(self) -> None:
        from app.keys_dialog import KeysDialog

        KeysDialog(self).show()

    def save_as(self, result: Result | None = None) -> None:
        """Ask where to put a result, by default the one that is shown."""
        from PySide6.QtWidgets import QFileDialog

        result = result or self._studio.results.neighbour(0)
        if result is None:
            return
        folder = self._store.current.output_folder or self._usual_folder
        name = result.path.name if result.path is not None else f"seed{result.request.seed}.png"
        dialog = QFileDialog(self, self.tr("Save the picture as"), str(folder), self.tr("PNG pictures (*.png)"))
        dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
        dialog.setDefaultSuffix("png")
        dialog.selectFile(name)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.fileSelected.connect(lambda file: self._do(self._studio.save_as(result, Path(file))))
        dialog.open()

    def copy(self) -> None:
        """The picture that is shown, to the clipboard."""
        if self._studio.shown is not None:
            QGuiApplication.clipboard().setImage(to_qimage(self._studio.shown.image))

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Dropping a picture, or LoRAs

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.source() is None and _dropped_files(event.mimeData()):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        files = _dropped_files(event.mimeData())
        if files:
            event.acceptProposedAction()
        if files and all(_is_lora(file) for file in files):
            for file in files:
                self._studio.form.add_lora(file)
        elif files:
            self._do(self._studio.restore_from_file(files[0]))

    # Beginning and end

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        # laid out to the end before the first paint, which would otherwise show a scroll bar that isn't needed
        QCoreApplication.sendPostedEvents(None, QEvent.Type.LayoutRequest)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if not self._painted:
            self._painted = True
            # what is painted now is flushed to the screen before the loop gets to this
            QTimer.singleShot(0, self, self.first_painted.emit)

    def closeEvent(self, event: QCloseEvent) -> None:
        self._show.drop()
        self._show_progress.drop()
        event.accept()
        self.closed.emit()

    def follow_window_state(self) -> None:
        """Put the panels back where the window manager ended full screen by itself."""
        if self.status.isHidden() and not self.window().isFullScreen():
            self._leave_full_screen()

    def remember(self) -> Remembered:
        shown = self._folds if self.window().isFullScreen() else self._panels.shown
        return Remembered(
            form=self._studio.form.remember(),
            geometry=self.window().saveGeometry().toBase64().toStdString(),
            column_width=self._panels.column_width,
            strip_size=self._panels.strip_size,
            column_shown=shown[0],
            strip_shown=shown[1],
            negative_shown=self.column.negative.unfolded,
            more_shown=self.column.form.more.unfolded,
        )

    def _recall(self, remembered: Remembered) -> None:
        self._panels.set_sizes(remembered.column_width, remembered.strip_size)
        self._panels.show_panels(remembered.column_shown, remembered.strip_shown)
        if remembered.negative_shown:
            self.column.negative.unfold()
        if remembered.more_shown:
            self.column.form.more.unfold()


def _dropped_files(mime: QMimeData) -> list[Path]:
    """One file of any kind, or any number of LoRAs."""
    files = [Path(url.toLocalFile()) for url in mime.urls() if url.isLocalFile()]
    return files if len(files) == 1 or all(map(_is_lora, files)) else []


def _is_lora(file: Path) -> bool:
    return file.suffix.lower() == ".safetensors"
