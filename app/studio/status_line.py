"""One line: the model, the device, what the engine does, how far the run is, and memory."""

from __future__ import annotations

import asyncio

from PySide6.QtCore import QTimer, Signal, SignalInstance
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QSizePolicy, QWidget

from app import memory
from app.controls.icon_button import IconButton
from app.shortcuts import KEYS, Command
from app.studio.progress import Progress, plan_text
from app.style.theme import Appearance
from app.style.tokens import GRID, HALF, STATUS_HEIGHT
from engine.events import EngineActivity

_MEMORY_EVERY = 2000  # ms


class StatusLine(QFrame):
    column_toggled = Signal()
    strip_toggled = Signal()
    keys_wanted = Signal()
    settings_wanted = Signal()

    def __init__(self, appearance: Appearance, model: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("statusLine")
        self.setFixedHeight(STATUS_HEIGHT)
        self._model = model
        self._activity = EngineActivity()
        self._progress = Progress()
        self.engine_label = self._label(self.tr("Engine"))
        self.progress_label = self._label(self.tr("Progress"))
        self.progress_label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.memory_label = self._label(self.tr("Memory"))
        self.column_button = self._button(appearance, "column", Command.COLUMN, self.column_toggled)
        self.strip_button = self._button(appearance, "strip", Command.STRIP, self.strip_toggled)
        self.keys_button = self._button(appearance, "keys", Command.KEYS, self.keys_wanted, self.tr("Keys"))
        self.settings_button = self._button(appearance, "settings", Command.SETTINGS, self.settings_wanted)
        row = QHBoxLayout(self)
        row.setContentsMargins(HALF, 0, HALF, 0)
        row.setSpacing(HALF)
        row.addWidget(self.column_button)
        row.addSpacing(HALF)
        row.addWidget(self.engine_label)
        row.addSpacing(2 * GRID)
        row.addWidget(self.progress_label, 1)
        row.addWidget(self.memory_label)
        row.addSpacing(GRID)
        row.addWidget(self.keys_button)
        row.addWidget(self.settings_button)
        row.addWidget(self.strip_button)
        self._memory_timer = QTimer(self, interval=_MEMORY_EVERY)
        self._memory_timer.timeout.connect(self._measure)
        self._measuring: asyncio.Task[None] | None = None
        self._show()

    def start_measuring(self) -> None:
        """Show memory from now on, once the engine's libraries are there. Needs a running loop."""
        self._memory_timer.start()

    def stop_measuring(self) -> None:
        self._memory_timer.stop()
        if self._measuring is not None:
            self._measuring.cancel()

    def show_activity(self, activity: EngineActivity) -> None:
        loaded = activity.model != self._activity.model
        self._activity = activity
        self._show()
        if loaded and self._memory_timer.isActive():
            self._measure()

    def show_progress(self, progress: Progress) -> None:
        self._progress = progress
        self._show()

    def _show(self) -> None:
        activity = self._activity
        parts = [activity.model or self._model, activity.device if activity.model else "", self._doing()]
        self.engine_label.setText(" · ".join(part for part in parts if part))
        self.progress_label.setText(self._progress.text)

    def _doing(self) -> str:
        activity, running = self._activity, plan_text(self._progress.plan)
        if activity.building:
            building = self.tr("building a plan: {names}").format(names=", ".join(activity.building))
            return f"{running}, {building}" if running else building[0].upper() + building[1:]
        if running or not activity.model:  # nothing runs anything before a model is loaded
            return running
        return self.tr("Plan ready") if activity.ready else self.tr("Eager")

    def _measure(self) -> None:
        if not self._activity.model:
            return  # importing a native module now would wait, with the interpreter's lock, until torch's are loaded
        if self._measuring is None or self._measuring.done():
            self._measuring = asyncio.get_running_loop().create_task(self._show_memory())

    async def _show_memory(self) -> None:
        used, free = await asyncio.to_thread(lambda: (memory.used(), memory.free()))
        self.memory_label.setText(self.tr("{gb} GB").format(gb=f"{used / 1e9:.1f}"))
        self.memory_label.setToolTip(
            self.tr("Memory used by Safelight and what builds its plans; {gb} GB of the machine's are free").format(
                gb=f"{free / 1e9:.1f}"
            )
        )

    def _label(self, name: str) -> QLabel:
        label = QLabel()
        label.setProperty("role", "status")
        label.setAccessibleName(name)
        return label

    def _button(
        self, appearance: Appearance, shape: str, command: Command, signal: SignalInstance, name: str = ""
    ) -> IconButton:
        button = IconButton(appearance, shape, name or command.words, KEYS[command], side=24)
        button.clicked.connect(signal)
        return button
