"""The list of LoRAs: rows follow the form, and the form what is done in them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.studio.form import Form
from app.studio.lora_list import LoraList
from app.style.theme import Appearance


@pytest.fixture
def shown(qtbot: QtBot, form: Form, appearance: Appearance) -> LoraList:
    made = LoraList(form, appearance)
    qtbot.addWidget(made)
    made.resize(280, 300)
    made.show()
    return made


def test_files_that_were_chosen_become_rows_at_strength_1(shown: LoraList, form: Form) -> None:
    dialog = shown.choose()
    dialog.filesSelected.emit(["/loras/clay.safetensors", "/loras/night.safetensors"])
    dialog.close()
    assert [Path(use.file).name for use in form.loras] == ["clay.safetensors", "night.safetensors"]
    assert [row.strength.value() for row in shown.rows] == [1, 1]
    assert [row.remove_button.accessibleName() for row in shown.rows] == ["Remove clay", "Remove night"]


def test_a_strength_is_typed_or_dragged_without_making_the_rows_anew(qtbot: QtBot, shown: LoraList, form: Form) -> None:
    form.add_lora(Path("a.safetensors"))
    (row,) = shown.rows
    field = row.strength.field
    field.setFocus()
    field.selectAll()
    qtbot.keyClicks(field, "-2.5")
    qtbot.keyClick(field, Qt.Key.Key_Return)
    assert form.loras[0].strength == -2.5
    row.strength.slider.setValue(row.strength.slider.maximum())
    assert form.loras[0].strength == 2
    assert shown.rows == [row]


def test_a_removed_row_leaves_the_focus_in_the_list(shown: LoraList, form: Form) -> None:
    for name in ("a", "b"):
        form.add_lora(Path(f"{name}.safetensors"))
    shown.rows[0].remove_button.setFocus()
    shown.rows[0].remove_button.click()
    assert [use.file for use in form.loras] == ["b.safetensors"]
    assert shown.window().focusWidget() is shown.rows[0].remove_button
    shown.rows[0].remove_button.click()
    assert form.loras == ()
    assert shown.window().focusWidget() is shown.add_button


def test_a_long_name_is_cut_and_said_whole_beside_the_pointer(shown: LoraList, form: Form) -> None:
    file = Path("/loras") / f"{'very ' * 40}long.safetensors"
    form.add_lora(file)
    assert shown.sizeHint().width() < 400
    assert shown.rows[0]._label.toolTip() == str(file)
