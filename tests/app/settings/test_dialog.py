from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QComboBox, QLabel, QLineEdit, QScrollArea, QWidget
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


async def type_folder(qtbot: QtBot, dialog: SettingsDialog, folder: str) -> QLineEdit:
    """Type a folder and wait until it has been tried."""
    line = dialog.controls["output_folder"].focusProxy()
    assert isinstance(line, QLineEdit)
    line.clear()
    qtbot.keyClicks(line, folder)
    qtbot.keyClick(line, Qt.Key.Key_Return)
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not asyncio.current_task()))
    return line


async def test_the_folder_can_be_typed_and_emptied(
    qtbot: QtBot, dialog: SettingsDialog, store: SettingsStore, tmp_path: Path
) -> None:
    line = await type_folder(qtbot, dialog, str(tmp_path))
    assert store.current.output_folder == tmp_path
    assert not list(tmp_path.glob(".safelight-*"))
    await type_folder(qtbot, dialog, str(tmp_path / "new"))
    assert store.current.output_folder == tmp_path / "new"
    await type_folder(qtbot, dialog, "")
    assert store.current.output_folder is None
    assert Path(line.text()) == Path("/usual")


@pytest.mark.parametrize(
    ("folder", "reason"), [("file", "is a file"), ("file/under", "can't be written to"), ("no/such", "doesn't exist")]
)
async def test_a_folder_that_cannot_be_used_is_said_and_changes_nothing(
    qtbot: QtBot, dialog: SettingsDialog, store: SettingsStore, tmp_path: Path, folder: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    explanations = said(dialog)
    await type_folder(qtbot, dialog, str(tmp_path / folder))
    assert store.current.output_folder is None
    (sentence,) = said(dialog) - explanations
    assert reason in sentence
    assert sentence.endswith("/usual is still used.")
    await type_folder(qtbot, dialog, str(tmp_path))
    assert store.current.output_folder == tmp_path
    assert said(dialog) == explanations


def said(dialog: SettingsDialog) -> set[str]:
    return {label.text() for label in dialog.findChildren(QLabel)}


def test_it_is_no_higher_than_the_screen(dialog: SettingsDialog) -> None:
    assert dialog.height() < dialog.screen().availableGeometry().height()
    scroll = dialog.findChild(QScrollArea)
    assert isinstance(scroll, QScrollArea)
    assert not scroll.horizontalScrollBar().maximum()
