from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from app.controls.number_field import NumberField, SliderField


@pytest.fixture
def field(qtbot: QtBot) -> NumberField:
    made = NumberField(0, 4096, step=32)
    qtbot.addWidget(made)
    made.show_value(512)
    made.show()
    return made


def type_into(qtbot: QtBot, field: NumberField, text: str) -> None:
    field.setFocus()
    field.selectAll()
    qtbot.keyClicks(field, text)
    qtbot.keyClick(field, Qt.Key.Key_Return)


def turn_wheel(widget: QWidget) -> bool:
    """True when the widget took the event."""
    centre = QPointF(widget.rect().center())
    event = QWheelEvent(
        centre, centre, QPoint(), QPoint(0, 120), Qt.MouseButton.NoButton, Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase, False,
    )  # fmt: skip
    event.setAccepted(True)
    widget.wheelEvent(event)
    return event.isAccepted()


def test_maths_is_worked_out(qtbot: QtBot, field: NumberField) -> None:
    type_into(qtbot, field, "512*1.5")
    assert field.value() == 768
    assert field.text() == "768"


def test_nonsense_gives_back_the_last_value(qtbot: QtBot, field: NumberField) -> None:
    type_into(qtbot, field, "a lot")
    assert field.value() == 512
    assert field.text() == "512"


def test_out_of_range_becomes_the_nearest_in_range(qtbot: QtBot, field: NumberField) -> None:
    type_into(qtbot, field, "99999")
    assert field.value() == 4096


def test_only_a_person_s_value_is_told(qtbot: QtBot, field: NumberField) -> None:
    told: list[float] = []
    field.edited.connect(told.append)
    field.show_value(64)
    type_into(qtbot, field, "128")
    assert told == [128]


def test_arrows_step(qtbot: QtBot, field: NumberField) -> None:
    field.setFocus()
    qtbot.keyClick(field, Qt.Key.Key_Up)
    assert field.value() == 544


def test_the_wheel_turns_only_a_focused_field(qtbot: QtBot, field: NumberField) -> None:
    elsewhere = QWidget()
    qtbot.addWidget(elsewhere)
    field.clearFocus()
    assert not turn_wheel(field)
    assert field.value() == 512
    field.activateWindow()
    field.setFocus()
    qtbot.waitUntil(field.hasFocus)
    assert turn_wheel(field)
    assert field.value() == 544


def test_a_large_seed_is_exact(qtbot: QtBot) -> None:
    field = NumberField(0, 2**32 - 1)
    qtbot.addWidget(field)
    type_into(qtbot, field, "4294967295")
    assert field.value() == 2**32 - 1
    assert field.text() == "4294967295"


def test_decimals_are_shown_without_idle_zeros(qtbot: QtBot) -> None:
    field = NumberField(1, 30, 0.5, decimals=2)
    qtbot.addWidget(field)
    field.show_value(7.5)
    assert field.text() == "7.5"
    field.show_value(30)
    assert field.text() == "30"


def test_slider_and_field_follow_each_other(qtbot: QtBot) -> None:
    both = SliderField("Width", "In pixels", 32, 4096, 32)
    qtbot.addWidget(both)
    both.set_slider_range(32, 512, 32)
    told: list[float] = []
    both.edited.connect(told.append)
    both.slider.setValue(3)
    assert both.value() == 128
    type_into(qtbot, both.field, "256")
    assert both.slider.value() == 7
    both.show_value(32)
    assert both.slider.value() == 0
    assert told == [128, 256]


def test_both_halves_have_a_name(qtbot: QtBot) -> None:
    both = SliderField("Width", "In pixels", 32, 4096, 32)
    qtbot.addWidget(both)
    QApplication.processEvents()
    assert both.slider.accessibleName() == both.field.accessibleName() == "Width"
