"""The numbers of the form, one under the other."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QHBoxLayout, QLabel, QVBoxLayout, QWidget

from app.controls.correction import Correction
from app.controls.fold import Fold
from app.controls.icon_button import IconButton, with_key
from app.controls.number_field import NumberField, SliderField
from app.shortcuts import KEYS, Command
from app.studio.backend_box import BackendBox
from app.studio.form import MAX_COUNT, Form
from app.studio.lora_list import LoraList
from app.studio.sampler_box import SamplerBox
from app.style.theme import Appearance
from app.style.tokens import GRID, HALF
from engine.request import MAX_SEED, Backend

_ANY_SIDE = 10**6  # pixels


class FormView(QWidget):
    """Labels above fields, in the order the eye and the Tab key follow."""

    def __init__(self, form: Form, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._form = form
        self._appearance = appearance
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(GRID + HALF)
        self._add_size()
        self._add_steps_and_guidance()
        self._add_sampler()
        self._add_seed()
        self._add_count()
        self.loras = LoraList(form, appearance)
        self._column.addWidget(self.loras)
        self._add_more()
        self._column.addStretch(1)

    def _add_size(self) -> None:
        form, multiple = self._form, self._form.description.size_multiple
        tip = self.tr("In pixels, by {multiple}. Takes maths, such as 128*1.5.").format(multiple=multiple)
        # the field takes what is typed and the model rounds it, so that the note can say what happened
        self.width_field = SliderField(self.tr("Width"), tip, -_ANY_SIDE, _ANY_SIDE, multiple)
        self.height_field = SliderField(self.tr("Height"), tip, -_ANY_SIDE, _ANY_SIDE, multiple)
        for field in (self.width_field, self.height_field):
            field.set_slider_range(multiple, form.largest_side, multiple)
        self.swap_button = IconButton(
            self._appearance, "swap", self.tr("Swap width and height"), KEYS[Command.SWAP_SIDES], side=20
        )
        self._column.addLayout(self._field(self.tr("Width"), self.width_field, self.swap_button))
        self._column.addLayout(self._field(self.tr("Height"), self.height_field))
        self.width_field.edited.connect(lambda value: self._size_edited(value, form.height))
        self.height_field.edited.connect(lambda value: self._size_edited(form.width, value))
        self.swap_button.clicked.connect(form.swap_sides)
        form.width_changed.connect(self.width_field.show_value)
        form.height_changed.connect(self.height_field.show_value)
        form.width_note_changed.connect(self.width_field.corrected)
        form.height_note_changed.connect(self.height_field.corrected)
        self._show_sides()

    def _size_edited(self, width: float, height: float) -> None:
        self._form.set_size(width, height)
        self._show_sides()

    def _show_sides(self) -> None:
        form = self._form
        self.width_field.show_value(form.width)
        self.height_field.show_value(form.height)
        # said again where it is the same as before, which the form doesn't tell
        self.width_field.corrected.emit(form.width_note)
        self.height_field.corrected.emit(form.height_note)

    def _add_steps_and_guidance(self) -> None:
        form = self._form
        self.steps_field = SliderField(
            self.tr("Steps"), self.tr("More steps take longer and settle finer detail."), 1, 150, slider_high=60
        )
        self.guidance_field = SliderField(
            self.tr("Guidance scale"),
            self.tr("How closely the picture keeps to the prompt. 1 runs without guidance."),
            1, 30, 0.5, decimals=2, slider_high=15,
        )  # fmt: skip
        self._column.addLayout(self._field(self.tr("Steps"), self.steps_field))
        self._column.addLayout(self._field(self.tr("Guidance scale"), self.guidance_field))
        self.steps_field.edited.connect(lambda value: setattr(form, "steps", round(value)))
        self.guidance_field.edited.connect(lambda value: setattr(form, "guidance_scale", value))
        form.steps_changed.connect(self.steps_field.show_value)
        form.guidance_scale_changed.connect(self.guidance_field.show_value)
        self.steps_field.show_value(form.steps)
        self.guidance_field.show_value(form.guidance_scale)

    def _add_sampler(self) -> None:
        form = self._form
        self.sampler_box = SamplerBox(
            self._appearance,
            self.tr("Sampler"),
            self.tr("How the steps get from noise to the picture."),
            form.description,
        )
        self._column.addLayout(self._field(self.tr("Sampler"), self.sampler_box))
        self.sampler_box.chosen.connect(form.use_sampler)
        form.sampler_changed.connect(self.sampler_box.show_sampler)
        self.sampler_box.show_sampler(form.sampler)

    def _add_seed(self) -> None:
        form = self._form
        self.seed_field = NumberField(0, MAX_SEED)
        self.seed_field.setAccessibleName(self.tr("Seed"))
        self.seed_field.setToolTip(self.tr("The same seed and settings make the same picture. Typing one keeps it."))
        self.random_button = IconButton(self._appearance, "dice", self.tr("New seed for every run"), framed=True)
        self.random_button.setCheckable(True)
        self.random_button.setAccessibleDescription(self.tr("Off keeps the seed shown"))
        self.seed_state = QLabel()
        self.seed_state.setProperty("role", "note")
        self.seed_field.corrected.connect(lambda note: self.seed_state.setHidden(bool(note)))
        row = QHBoxLayout()
        row.setSpacing(GRID)
        row.addWidget(self.seed_field, 1)
        row.addWidget(self.random_button)
        box = QVBoxLayout()
        box.setSpacing(HALF)
        heading = QHBoxLayout()
        heading.addWidget(self._label(self.tr("Seed"), self.seed_field))
        heading.addWidget(Correction(self.seed_field), 1)
        heading.addWidget(self.seed_state)
        box.addLayout(heading)
        box.addLayout(row)
        self._column.addLayout(box)
        self.seed_field.edited.connect(form.fix_seed)
        self.random_button.toggled.connect(lambda on: setattr(form, "random_seed", on))
        form.seed_changed.connect(self.seed_field.show_value)
        form.random_seed_changed.connect(self._show_random)
        self.seed_field.show_value(form.seed)
        self._show_random(form.random_seed)

    def _show_random(self, on: bool) -> None:
        self.random_button.setChecked(on)
        self.seed_state.setText(self.tr("New for every run") if on else self.tr("Kept"))
        self.random_button.setToolTip(
            self.tr("Keep the seed shown")
            if on
            else with_key(self.tr("New seed for every run; only once"), KEYS[Command.NEW_SEED])
        )

    def _add_count(self) -> None:
        form = self._form
        self.count_field = SliderField(
            self.tr("Pictures"), self.tr("Pictures per run, with seeds one after the other."),
            1, MAX_COUNT, slider_high=16,
        )  # fmt: skip
        self._column.addLayout(self._field(self.tr("Pictures"), self.count_field))
        self.count_field.edited.connect(lambda value: setattr(form, "count", round(value)))
        form.count_changed.connect(self.count_field.show_value)
        self.count_field.show_value(form.count)

    def _add_more(self) -> None:
        form = self._form
        self.backend_box = BackendBox(
            self._appearance,
            self.tr("Backend"),
            self.tr("Auto runs a compiled plan where one is ready. A named backend waits for its plan."),
        )
        content = QWidget()
        column = QVBoxLayout(content)
        column.setContentsMargins(0, 0, 0, 0)
        column.addLayout(self._field(self.tr("Backend"), self.backend_box))
        self.more = Fold(self._appearance, self.tr("More"), content)
        self._column.addWidget(self.more)
        self.backend_box.chosen.connect(lambda backend: setattr(form, "backend", backend))
        form.backend_changed.connect(self._show_backend)
        self._show_backend(form.backend)

    def _show_backend(self, backend: Backend) -> None:
        self.backend_box.show_backend(backend)
        if backend is not Backend.AUTO:
            self.more.unfold()

    def _field(self, title: str, field: QWidget, beside: QWidget | None = None) -> QVBoxLayout:
        box = QVBoxLayout()
        box.setSpacing(HALF)
        heading = QHBoxLayout()
        heading.addWidget(self._label(title, field))
        if isinstance(field, SliderField):
            heading.addWidget(Correction(field), 1)
        if beside is not None:
            heading.addWidget(beside, 0, Qt.AlignmentFlag.AlignBottom)
        box.addLayout(heading)
        box.addWidget(field)
        return box

    def _label(self, title: str, field: QWidget) -> QLabel:
        label = QLabel(title)
        label.setProperty("role", "label")
        label.setBuddy(field)
        return label
