from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QLineEdit, QWidget
from pytestqt.qtbot import QtBot

from app.settings.remembered import Remembered
from app.settings.settings import Settings, Theme
from app.shell import FirstLook, Shell
from app.style.tokens import DARK, LIGHT, STATUS_HEIGHT


def seen(shell: Shell, x: int, y: int) -> QColor:
    image: QImage = shell.grab().toImage()
    ratio = image.devicePixelRatio()
    return image.pixelColor(int(x * ratio), int(y * ratio))


def test_it_reads_what_settings_and_window_have_written(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text(Settings(theme=Theme.LIGHT).model_dump_json())
    (tmp_path / "window").write_text(Remembered(column_width=400, strip_shown=False).model_dump_json())
    look = FirstLook.read(tmp_path / "settings", tmp_path / "window")
    assert look == FirstLook(theme="light", column_width=400, strip_shown=False)


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"theme": 3, "column_width": "wide", "geometry": null}', b"\xff"])
def test_whatever_else_the_files_hold_it_comes_up(tmp_path: Path, qtbot: QtBot, content: bytes) -> None:
    (tmp_path / "settings").write_bytes(content)
    look = FirstLook.read(tmp_path / "settings", tmp_path / "missing")
    assert look == FirstLook()
    qtbot.addWidget(Shell(look))


def test_a_garbled_geometry_is_not_taken(qtbot: QtBot) -> None:
    shell = Shell(FirstLook(geometry="ä not base64"))
    qtbot.addWidget(shell)
    assert shell.width() > 200


@pytest.mark.parametrize(("theme", "tokens"), [("light", LIGHT), ("dark", DARK)])
def test_empty_it_has_the_panels_colours_in_their_places(qtbot: QtBot, theme: str, tokens: object) -> None:
    shell = Shell(FirstLook(theme=theme))
    qtbot.addWidget(shell)
    shell.resize(1200, 800)
    shell.show()
    colours = {name: QColor(getattr(tokens, name)) for name in ("panel", "ground", "line")}
    assert seen(shell, 100, 400) == seen(shell, 1190, 400) == seen(shell, 600, 795) == colours["panel"]
    assert seen(shell, 600, 400) == colours["ground"]
    assert seen(shell, 320, 400) == seen(shell, 600, 800 - STATUS_HEIGHT - 1) == colours["line"]
    shell.resize(900, 800)
    assert seen(shell, 890, 400) == colours["ground"]
    assert seen(shell, 600, 750) == colours["panel"]


def test_it_tells_of_its_first_paint_once_and_of_its_end(qtbot: QtBot) -> None:
    shell, told = Shell(FirstLook()), []
    qtbot.addWidget(shell)
    shell.painted.connect(lambda: told.append("painted"))
    shell.closed.connect(lambda: told.append("closed"))
    with qtbot.waitSignal(shell.painted):
        shell.show()
    shell.repaint()
    shell.close()
    assert told == ["painted", "closed"]
    assert shell.is_closed


def test_what_fills_it_gets_the_whole_of_it(qtbot: QtBot) -> None:
    shell, content = Shell(FirstLook()), QWidget()
    qtbot.addWidget(shell)
    shell.resize(800, 600)
    shell.show()
    shell.fill(content)
    qtbot.waitUntil(lambda: content.size() == shell.size())
    assert content.isVisible()


def test_what_is_typed_before_it_is_filled_is_not_lost(qtbot: QtBot) -> None:
    shell = Shell(FirstLook())
    qtbot.addWidget(shell)
    shell.show()
    qtbot.keyClicks(shell, "a Red")
    prompt = QLineEdit()
    shell.fill(prompt)
    qtbot.keyClicks(prompt, "")
    QCoreApplication.sendPostedEvents()
    assert prompt.text() == "a Red"


def test_it_stays_open_until_it_may_close(qtbot: QtBot) -> None:
    shell = Shell(FirstLook())
    qtbot.addWidget(shell)
    shell.show()
    answers = iter([False, True])
    shell.may_close = lambda: next(answers)
    shell.close()
    assert not shell.is_closed
    assert shell.isVisible()
    shell.close()
    assert shell.is_closed


def test_the_way_to_the_first_paint_imports_little() -> None:
    program = "import app.start, sys, json; print(json.dumps(sorted(sys.modules)))"
    modules = set(json.loads(subprocess.check_output([sys.executable, "-c", program], text=True)))
    assert not {"pydantic", "asyncio", "qasync", "engine", "app.window", "torch", "PIL"} & modules
