"""The whole window over a fake engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QTimer, QUrl
from PySide6.QtGui import QDropEvent, QGuiApplication
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QDialog,
    QLabel,
    QPlainTextEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from app.settings.remembered import Remembered
from app.settings.store import SettingsStore
from app.shortcuts import KEYS, Command
from app.studio.studio import Notice, Shown, Studio
from app.style.theme import Appearance
from app.window import Window
from engine.events import EngineActivity
from tests.app.fake_engine import FakeEngine, image_of

CONTROL = Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SettingsStore]:
    made = SettingsStore(tmp_path / "settings.json")
    yield made
    made.close()


@pytest.fixture
def make_window(qtbot: QtBot, studio: Studio, store: SettingsStore, appearance: Appearance) -> Callable[..., Window]:
    def make(remembered: Remembered | None = None) -> Window:
        made = Window(studio, store, appearance, Path("/usual"), remembered)
        qtbot.addWidget(made)
        made.resize(1280, 860)
        made.show()
        made.activateWindow()
        return made

    return make


@pytest.fixture
async def window(make_window: Callable[..., Window]) -> Window:
    return make_window()


async def until(holds: Callable[[], bool]) -> None:
    """Let both loops run until something holds."""
    async with asyncio.timeout(10):
        while not holds():
            QApplication.processEvents()
            await asyncio.sleep(0)


async def make_pictures(studio: Studio, engine: FakeEngine, shades: range) -> None:
    for shade in shades:
        studio.generate()
        engine.jobs[-1].finish(shade, path=Path(f"/pictures/{shade}.png"))
        await until(lambda: not studio.running)


def controls(window: Window) -> list[QWidget]:
    kinds = (QAbstractButton, QAbstractSlider, QAbstractSpinBox, QComboBox, QPlainTextEdit)
    return [
        widget
        for widget in window.findChildren(QWidget)
        if isinstance(widget, kinds) and not widget.objectName().startswith("qt_") and widget.parent() is not None
        if type(widget).__name__ != "QScrollBar"
    ]


async def test_every_control_has_a_name_an_explanation_and_a_place_in_the_tab_order(window: Window) -> None:
    found = controls(window)
    assert len(found) > 20
    for control in found:
        if isinstance(control, QAbstractButton) and control.text() == "" and control.icon().isNull():
            continue  # a notice's button while there is nothing to do
        assert control.accessibleName(), control
        assert control.focusPolicy() & Qt.FocusPolicy.TabFocus, control.accessibleName()


async def test_icons_say_in_a_tooltip_what_they_do(window: Window) -> None:
    for control in controls(window):
        if isinstance(control, QAbstractButton) and not control.text() and not control.icon().isNull():
            assert control.toolTip(), control.accessibleName()


async def test_tab_goes_the_way_the_eye_does(qtbot: QtBot, window: Window) -> None:
    column = window.column
    order = [
        column.prompt,
        column.negative.button,
        column.generate_button,
        column.form.swap_button,
        column.form.width_field.slider,
        column.form.width_field.field,
        column.form.height_field.slider,
        column.form.height_field.field,
        column.form.steps_field.slider,
        column.form.steps_field.field,
        column.form.guidance_field.slider,
        column.form.guidance_field.field,
        column.form.sampler_box,
        column.form.seed_field,
        column.form.random_button,
        column.form.count_field.slider,
        column.form.count_field.field,
        column.form.loras.add_button,
        column.form.more.button,
        window.empty.button,
        window.strip,
        window.status.column_button,
        window.status.keys_button,
        window.status.settings_button,
        window.status.strip_button,
    ]
    order[0].setFocus()
    for expected in order[1:]:
        qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Tab)
        assert QApplication.focusWidget() is expected, expected.accessibleName()


async def test_typing_and_ctrl_return_make_a_picture(qtbot: QtBot, window: Window, engine: FakeEngine) -> None:
    qtbot.keyClicks(window.column.prompt, "a red apple [1]")
    qtbot.keyClick(window.column.prompt, Qt.Key.Key_Return, CONTROL)
    assert [job.request.prompt for job in engine.jobs] == ["a red apple [1]"]


async def test_generate_becomes_cancel_in_the_same_place(
    qtbot: QtBot, window: Window, engine: FakeEngine, studio: Studio
) -> None:
    button = window.column.generate_button
    place = button.geometry()
    assert button.text() == "Generate"
    button.click()
    QApplication.processEvents()
    assert button.text() == button.accessibleName() == "Cancel"
    assert button.geometry() == place
    qtbot.keyClick(window, Qt.Key.Key_Escape)
    assert button.text() == "Generate"
    assert engine.jobs[0].cancels == 1


async def test_the_canvas_and_the_status_line_follow_the_run(
    window: Window, engine: FakeEngine, studio: Studio
) -> None:
    studio.generate()
    engine.jobs[0].step(3, preview=90)
    await until(lambda: window.status.progress_label.text().startswith("Step 3 of 30"))
    await until(lambda: window.canvas.isVisible())
    assert "Eager" in window.status.engine_label.text()


async def test_the_status_line_names_no_runner_before_a_model_is_loaded(window: Window, engine: FakeEngine) -> None:
    assert window.status.engine_label.text() == "Starter"
    engine.tell(EngineActivity(model="Starter"))
    await until(lambda: window.status.engine_label.text() == "Starter · CPU · Eager")
    engine.tell(EngineActivity(model="Starter", ready=("unet",)))
    await until(lambda: window.status.engine_label.text() == "Starter · CPU · Plan ready")


async def test_memory_is_shown_once_a_model_is_loaded(window: Window, engine: FakeEngine) -> None:
    window.status.start_measuring()
    assert window.status.memory_label.text() == ""
    engine.tell(EngineActivity(model="Starter"))
    await until(lambda: window.status.memory_label.text().endswith(" GB"))
    window.status.stop_measuring()


@pytest.mark.parametrize(
    ("pasted", "prompt"),
    [
        ("a\x00 red\x1b apple\u2028on a\r\ntable", "a red apple\non a\ntable"),
        ("a" * 30_000, "a" * 20_000),
    ],
)
async def test_what_is_pasted_is_made_plain(
    qtbot: QtBot, window: Window, engine: FakeEngine, pasted: str, prompt: str
) -> None:
    clipboard = QMimeData()
    clipboard.setText(pasted)
    window.column.prompt.insertFromMimeData(clipboard)
    qtbot.keyClick(window, Qt.Key.Key_Return, Qt.KeyboardModifier.ControlModifier)
    assert engine.jobs[0].request.prompt == prompt


async def test_the_example_makes_a_picture_at_once(window: Window, engine: FakeEngine) -> None:
    assert window.empty.isVisible()
    window.empty.button.click()
    assert engine.jobs[0].request.prompt == window.empty.button.text()
    assert window.column.prompt.toPlainText() == window.empty.button.text()


async def test_keys_for_the_picture_leave_the_prompt_alone(
    qtbot: QtBot, window: Window, engine: FakeEngine, studio: Studio
) -> None:
    await make_pictures(studio, engine, range(3))
    window.column.prompt.setFocus()
    qtbot.keyClicks(window.column.prompt, "f10[]")
    assert window.column.prompt.toPlainText() == "f10[]"
    assert window.canvas.fits
    assert not window.isFullScreen()


async def test_keys_walk_through_results_and_sizes(
    qtbot: QtBot, window: Window, engine: FakeEngine, studio: Studio
) -> None:
    await make_pictures(studio, engine, range(3))
    window.canvas.setFocus()
    qtbot.keyClick(window.canvas, Qt.Key.Key_BracketLeft)
    assert studio.results.selected is studio.results.items[1]
    qtbot.keyClick(window.canvas, Qt.Key.Key_BracketRight)
    assert studio.results.selected is studio.results.items[2]
    qtbot.keyClick(window.canvas, Qt.Key.Key_1)
    assert not window.canvas.fits
    qtbot.keyClick(window.canvas, Qt.Key.Key_0)
    assert window.canvas.fits


async def test_a_click_in_the_strip_restores(qtbot: QtBot, window: Window, engine: FakeEngine, studio: Studio) -> None:
    await make_pictures(studio, engine, range(3))
    strip = window.strip
    qtbot.mouseClick(
        strip.viewport(), Qt.MouseButton.LeftButton, pos=strip.visualRect(strip.model().index(0, 0)).center()
    )
    assert studio.form.take_requests() == [studio.results.items[0].request]
    assert int(window.column.form.seed_field.value()) == studio.results.items[0].request.seed


async def test_a_result_is_dragged_out_as_its_file_and_its_pixels(
    window: Window, engine: FakeEngine, studio: Studio
) -> None:
    await make_pictures(studio, engine, range(5, 6))
    mime = window.strip.model().mimeData([window.strip.model().index(0, 0)])
    assert [url.toLocalFile() for url in mime.urls()] == ["/pictures/5.png"]
    assert mime.hasImage()


async def test_ctrl_c_copies_the_picture(qtbot: QtBot, window: Window, engine: FakeEngine, studio: Studio) -> None:
    await make_pictures(studio, engine, range(9, 10))
    await until(lambda: window.canvas.isVisible())
    window.canvas.setFocus()
    qtbot.keyClick(window.canvas, Qt.Key.Key_C, CONTROL)
    copied = QGuiApplication.clipboard().image()
    assert (copied.width(), copied.height()) == (8, 8)
    assert copied.pixelColor(0, 0).red() == 9


async def test_a_dropped_picture_is_read(window: Window, studio: Studio, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Path] = []

    async def restore(path: Path) -> None:
        read.append(path)

    monkeypatch.setattr(studio, "restore_from_file", restore)
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile("/pictures/old.png")])
    window.dropEvent(
        QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, mime, Qt.MouseButton.LeftButton, Qt.KeyboardModifier(0))
    )
    await until(lambda: bool(read))
    assert read == [Path("/pictures/old.png")]


async def test_dropped_loras_join_the_form(window: Window, studio: Studio) -> None:
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(f"/loras/{name}.safetensors") for name in "ab"])
    window.dropEvent(
        QDropEvent(QPointF(5, 5), Qt.DropAction.CopyAction, mime, Qt.MouseButton.LeftButton, Qt.KeyboardModifier(0))
    )
    assert [Path(use.file).stem for use in studio.form.loras] == ["a", "b"]


async def test_a_notice_stands_under_the_prompt_and_can_be_dismissed(window: Window, studio: Studio) -> None:
    studio.notice = Notice("bad", "The disk is full.")
    assert window.column.notice.isVisible()
    assert window.column.notice.sentence == "The disk is full."
    window.column.notice.close_button.click()
    assert not window.column.notice.isVisible()


async def test_a_typed_size_is_rounded_and_said(qtbot: QtBot, window: Window, studio: Studio) -> None:
    field = window.column.form.width_field.field
    field.setFocus()
    field.selectAll()
    qtbot.keyClicks(field, "100*1.5")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert studio.form.width == 160
    assert field.value() == 160
    assert "150 → 160, a multiple of 32" in shown_words(window)


def shown_words(window: Window) -> list[str]:
    return [label.text() for label in window.column.findChildren(QLabel) if label.isVisible()]


@pytest.mark.parametrize(
    ("name", "typed", "words"),
    [
        ("width_field", "9000", "9000 → 512, the largest"),
        ("height_field", "0", "0 → 32, the smallest"),
        ("steps_field", "10*100", "1000 → 150, the largest"),
        ("guidance_field", "0.25", "0.25 → 1, the smallest"),
        ("count_field", "65", "65 → 64, the largest"),
        ("count_field", "many", "Not a number"),
        ("seed_field", "99999999999", "1e+11 → 4294967295, the largest"),
    ],
)
async def test_an_entry_that_is_not_taken_as_it_was_is_said_beside_its_field_and_moves_nothing(
    qtbot: QtBot, window: Window, name: str, typed: str, words: str
) -> None:
    form = window.column.form
    entry = getattr(form, name)
    field = getattr(entry, "field", entry)
    places = [(child, child.geometry()) for child in form.findChildren(QWidget) if not isinstance(child, QLabel)]
    for _ in range(2):  # the second time, the value stays as it is
        field.setFocus()
        field.selectAll()
        qtbot.keyClicks(field, typed)
        assert words not in shown_words(window)
        qtbot.keyClick(field, Qt.Key.Key_Return)
        assert words in shown_words(window)
        assert [(child, child.geometry()) for child, _ in places] == places
    qtbot.keyClick(field, Qt.Key.Key_Up)
    qtbot.keyClick(field, Qt.Key.Key_Down)
    assert words not in shown_words(window)


async def test_typing_a_seed_turns_random_off_and_one_click_turns_it_on(
    qtbot: QtBot, window: Window, studio: Studio
) -> None:
    form = window.column.form
    form.seed_field.setFocus()
    form.seed_field.selectAll()
    qtbot.keyClicks(form.seed_field, "7")
    qtbot.keyClick(form.seed_field, Qt.Key.Key_Return)
    assert not studio.form.random_seed
    assert not form.random_button.isChecked()
    form.random_button.click()
    assert studio.form.random_seed
    assert studio.form.seed == 7


async def test_dialogs_are_opened_and_block_nothing(qtbot: QtBot, window: Window) -> None:
    qtbot.keyClick(window, Qt.Key.Key_Comma, CONTROL)
    qtbot.keyClick(window, Qt.Key.Key_F1)
    dialogs = window.findChildren(QDialog)
    assert len(dialogs) == 2
    assert not any(dialog.isModal() for dialog in dialogs)
    for dialog in dialogs:
        dialog.close()


async def test_a_narrow_window_has_its_strip_below(window: Window) -> None:
    assert window.strip.geometry().left() > window.canvas.width() // 2
    window.resize(900, 800)
    await until(lambda: window.strip.width() > 400)
    assert window.strip.height() < 300


async def test_full_screen_shows_the_canvas_alone_and_comes_back(
    qtbot: QtBot, window: Window, engine: FakeEngine, studio: Studio
) -> None:
    await make_pictures(studio, engine, range(1))
    window.fold_strip()
    window.canvas.setFocus()
    qtbot.keyClick(window.canvas, Qt.Key.Key_F)
    assert window.isFullScreen()
    assert window.column.isHidden()
    assert window.status.isHidden()
    qtbot.keyClick(window.canvas, Qt.Key.Key_Escape)
    assert not window.isFullScreen()
    assert not window.column.isHidden()
    assert window.strip.isHidden()


async def test_sizes_folds_and_values_are_remembered(window: Window, make_window: Callable[..., Window]) -> None:
    window.column.prompt.edited.emit("a house")
    window.fold_strip()
    window.column.negative.unfold()
    remembered = Remembered.model_validate_json(window.remember().model_dump_json())
    other = make_window(remembered)
    assert other.strip.isHidden()
    assert other.column.negative.unfolded
    assert remembered.form.request is not None
    assert remembered.form.request.prompt == "a house"


async def test_the_first_paint_is_told_once(qtbot: QtBot, make_window: Callable[..., Window]) -> None:
    window, told = make_window(), []
    window.first_painted.connect(lambda: told.append(True))
    await until(lambda: bool(told))
    window.update()
    window.repaint()
    assert told == [True]


async def test_every_key_is_bound_but_the_canvas_s_own(window: Window) -> None:
    from PySide6.QtGui import QShortcut

    bound = {shortcut.key().toString() for shortcut in window.findChildren(QShortcut)}
    wanted = {keys for command, keys in KEYS.items() if command is not Command.COPY}
    assert wanted <= bound


async def test_a_picture_that_waits_for_the_next_frame_does_not_come_after_the_window_is_closed(
    window: Window, studio: Studio, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Shown | None] = []
    monkeypatch.setattr(window.canvas, "show_picture", drawn.append)
    closed: list[bool] = []
    window.closed.connect(lambda: closed.append(True))
    first, waiting = Shown(image_of(10), preview=True), Shown(image_of(20), preview=True)
    studio.shown = first
    studio.shown = waiting
    window.close()
    assert closed == [True]
    frames_later: list[bool] = []
    QTimer.singleShot(5 * 16, lambda: frames_later.append(True))  # fires after the throttle's own timer would have
    await until(lambda: bool(frames_later))
    assert drawn == [first]
