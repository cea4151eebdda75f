from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QComboBox, QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.settings.dialog import SettingsDialog
from app.settings.settings import Settings, Theme
from app.settings.store import SettingsStore
from app.style.theme import Appearance
from engine.request import Switch


@pytest.fixture
def store(tmp_path: Path) -> SettingsStore:
    return SettingsStore(tmp_path / "settings.json")


@pytest.fixture
def dialog(qtbot: QtBot, store: SettingsStore, appearance: Appearance) -> SettingsDialog:
    parent = QWidget()
    qtbot.addWidget(parent)
    made = SettingsDialog(store, appearance, Path("/usual"), parent)
    made.kept_parent = parent  # type: ignore[attr-defined]  # Qt deletes the dialog with it
    made.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose, False)
    made.show()
    return made


def test_every_setting_has_a_named_explained_control(dialog: SettingsDialog) -> None:
    assert set(dialog.controls) == set(Settings.model_fields)
    for name, control in dialog.controls.items():
        focused = control.focusProxy() or control
        assert focused.accessibleName() == Settings.model_fields[name].title
        assert focused.toolTip()


def test_it_blocks_nothing(dialog: SettingsDialog) -> None:
    assert not dialog.isModal()


def test_a_choice_counts_at_once(qtbot: QtBot, dialog: SettingsDialog, store: SettingsStore) -> None:
    box = dialog.controls["theme"]
    assert isinstance(box, QComboBox)
    box.setFocus()
    qtbot.keyClick(box, Qt.Key.Key_Down)
    assert store.current.theme is Theme.LIGHT
    tiling = dialog.controls["vae_tiling"]
    qtbot.keyClick(tiling, Qt.Key.Key_End)
    assert store.current.vae_tiling is Switch.OFF


def test_a_switch_counts_at_once(dialog: SettingsDialog, store: SettingsStore) -> None:
    box = dialog.controls["previews"]
    assert isinstance(box, QCheckBox)
    box.click()
    assert store.current.previews is False


def test_the_folder_can_be_typed_and_emptied(qtbot: QtBot, dialog: SettingsDialog, store: SettingsStore) -> None:
    line = dialog.controls["output_folder"].focusProxy()
    assert isinstance(line, QLineEdit)
    assert Path(line.text()) == Path("/usual")
    line.selectAll()
    qtbot.keyClicks(line, "/mine")
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert store.current.output_folder == Path("/mine")
    line.clear()
    qtbot.keyClick(line, Qt.Key.Key_Return)
    assert store.current.output_folder is None
    assert Path(line.text()) == Path("/usual")
