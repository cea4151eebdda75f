"""The column: prompt, Generate, what went wrong, and the form under them."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLabel, QPushButton, QScrollArea, QSizePolicy, QVBoxLayout, QWidget

from app.controls.fold import Fold
from app.controls.icon_button import with_key
from app.controls.notice_bar import NoticeBar
from app.shortcuts import KEYS, Command
from app.studio.form_view import FormView
from app.studio.prompt_editor import PromptEditor
from app.studio.studio import Action, Notice, Studio
from app.style.theme import Appearance
from app.style.tokens import GRID, HALF


class Column(QWidget):
    """The prompt and Generate stay in place; what is under them scrolls."""

    generate_wanted = Signal()

    def __init__(self, studio: Studio, appearance: Appearance, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("column")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._studio = studio
        self.prompt = PromptEditor(self.tr("Prompt"), least=4, most=9)
        self.prompt.setPlaceholderText(self.tr("Describe the picture"))
        self.prompt.setToolTip(with_key(self.tr("What the picture shows"), KEYS[Command.PROMPT]))
        self.negative_prompt = PromptEditor(self.tr("Negative prompt"), least=2, most=5)
        self.negative_prompt.setPlaceholderText(self.tr("What it should keep away from"))
        self.negative_prompt.setToolTip(self.tr("What the picture keeps away from; needs a guidance scale above 1"))
        self.negative = Fold(appearance, self.tr("Negative prompt"), self.negative_prompt)
        self.generate_button = QPushButton()
        self.generate_button.setObjectName("generate")
        self.notice = NoticeBar(appearance)
        self.form = FormView(studio.form, appearance)
        self._lay_out()
        self._bind()

    def _lay_out(self) -> None:
        label = QLabel(self.tr("Prompt"))
        label.setProperty("role", "label")
        label.setBuddy(self.prompt)
        top = QVBoxLayout()
        top.setContentsMargins(2 * GRID, GRID + HALF, 2 * GRID, 2 * GRID)
        top.setSpacing(HALF)
        for widget in (label, self.prompt, self.negative):
            top.addWidget(widget)
        top.addSpacing(HALF)
        top.addWidget(self.generate_button)
        top.addSpacing(HALF)
        top.addWidget(self.notice)
        page = QWidget()
        page.setObjectName("columnPage")
        inside = QVBoxLayout(page)
        inside.setContentsMargins(2 * GRID, 2 * GRID, 2 * GRID, 2 * GRID)
        inside.addWidget(self.form)
        scroll = QScrollArea()
        scroll.setObjectName("columnScroll")
        scroll.setWidgetResizable(True)
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        scroll.setWidget(page)
        scroll.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Expanding)
        scroll.verticalScrollBar().rangeChanged.connect(
            lambda low, high: inside.setContentsMargins(2 * GRID, 2 * GRID, GRID if high > low else 2 * GRID, 2 * GRID)
        )
        hairline = QFrame()
        hairline.setProperty("role", "hairline")
        hairline.setFixedHeight(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        column.addLayout(top)
        column.addWidget(hairline)
        column.addWidget(scroll, 1)

    def _bind(self) -> None:
        studio, form = self._studio, self._studio.form
        self._studio.activity_changed.connect(
            lambda activity: self.form.backend_box.show_unavailable(activity.unavailable)
        )
        self.prompt.edited.connect(lambda text: setattr(form, "prompt", text))
        self.negative_prompt.edited.connect(lambda text: setattr(form, "negative_prompt", text))
        form.prompt_changed.connect(self.prompt.show_text)
        form.negative_prompt_changed.connect(self._show_negative)
        self.generate_button.clicked.connect(studio.generate_or_cancel)
        studio.running_changed.connect(self._show_running)
        studio.notice_changed.connect(self._show_notice)
        self.notice.acted.connect(studio.act)
        self.notice.dismissed.connect(studio.dismiss)
        self.prompt.show_text(form.prompt)
        self._show_negative(form.negative_prompt)
        self._show_running(studio.running)
        self._show_notice(studio.notice)

    def _show_negative(self, text: str) -> None:
        self.negative_prompt.show_text(text)
        if text:
            self.negative.unfold()

    def _show_running(self, running: bool) -> None:
        button = self.generate_button
        button.setText(self.tr("Cancel") if running else self.tr("Generate"))
        button.setAccessibleName(button.text())
        command = Command.CANCEL if running else Command.GENERATE
        button.setToolTip(with_key(command.words, KEYS[command]))
        now = "true" if running else "false"
        if button.property("running") != now:
            button.setProperty("running", now)
            if button.testAttribute(Qt.WidgetAttribute.WA_WState_Polished):
                button.style().unpolish(button)
                button.style().polish(button)

    def _show_notice(self, notice: Notice | None) -> None:
        if notice is None:
            self.notice.hide()
            return
        words = {
            Action.NONE: "",
            Action.TRY_AGAIN: self.tr("Try again"),
            Action.SAVE_AS: self.tr("Save as…"),
            Action.UNDO: self.tr("Undo"),
        }
        self.notice.say(notice.kind, notice.sentence, words[notice.action])
