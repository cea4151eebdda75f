"""The window's life, in a process of its own: what is there at the first paint, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

# Plays a scenario in the program's own window with a fake engine: {scenario} is called at the first paint.
_PROGRAM = """
import json, os, signal, sys, threading, time
import app.main
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from app.window import Window
from tests.app.fake_engine import FakeEngine

told = {{}}
engines = []

class Engine(FakeEngine):
    def __init__(self, settings=None, version=""):
        super().__init__(settings)
        engines.append(self)

class Watched(Window):
    def __init__(self, studio, *arguments):
        super().__init__(studio, *arguments)
        self.studio = studio
        self.first_painted.connect(self.begin)

    def begin(self):
        heavy = {{"torch", "diffusers", "transformers", "openvino"}} & set(sys.modules)
        told.update(heavy=sorted(heavy), warmed_before=list(engines[0].warmed), offline=os.environ["HF_HUB_OFFLINE"])
        QTimer.singleShot(0, lambda: scenario(self))

def scenario(window):
{scenario}

app.main.Engine, app.main.Window = Engine, Watched
from app.start import run_window
status = run_window([])
told.update(status=status, warmed=engines[0].warmed, closed=engines[0].closed, listeners=engines[0].listeners)
told["cancels"] = [job.cancels for job in engines[0].jobs]
told["settings"] = engines[0].settings.model_dump(mode="json")
print(json.dumps(told))
"""


def play(scenario: str, home: Path, **environment: str) -> dict[str, object]:
    program = _PROGRAM.format(scenario="\n".join("    " + line for line in scenario.splitlines()))
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen", "SAFELIGHT_HOME": str(home)} | environment,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    told: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    return told


def test_the_window_is_painted_before_anything_heavy_is_imported_or_begun(tmp_path: Path) -> None:
    told = play("window.close()", tmp_path)
    assert told["heavy"] == []
    assert told["warmed_before"] == []
    assert told["warmed"] == ["starter"]
    assert told["offline"] == "1"


def test_closing_during_a_run_cancels_it_and_closes_the_engine(tmp_path: Path) -> None:
    told = play("window.studio.form.count = 2\nwindow.studio.generate()\nwindow.close()", tmp_path)
    assert told["status"] == 0
    assert all(told["cancels"])  # type: ignore[arg-type]
    assert len(told["cancels"]) == 2  # type: ignore[arg-type]
    assert told["closed"]
    assert told["listeners"] == 0


@pytest.mark.skipif(os.name == "nt", reason="signals are sent differently there")
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_closes_the_window(tmp_path: Path, name: str) -> None:
    told = play(f"os.kill(os.getpid(), {getattr(signal, name).value})", tmp_path)
    assert told["status"] == 0
    assert told["closed"]


def test_a_loop_that_is_ended_from_outside_still_closes_the_engine(tmp_path: Path) -> None:
    told = play("QApplication.exit(0)", tmp_path)
    assert told["closed"]


def test_what_was_typed_is_there_the_next_time(tmp_path: Path) -> None:
    play("window.column.prompt.edited.emit('a red apple')\nwindow.fold_strip()\nwindow.close()", tmp_path)
    told = play(
        "told.update(prompt=window.column.prompt.toPlainText(), strip=window.strip.isHidden())\nwindow.close()",
        tmp_path,
    )
    assert told["prompt"] == "a red apple"
    assert told["strip"] is True


def test_a_changed_setting_reaches_the_engine_at_once(tmp_path: Path) -> None:
    told = play("window._store.change(vae_tiling='on', previews=False)\nwindow.close()", tmp_path)
    settings = told["settings"]
    assert isinstance(settings, dict)
    assert settings["vae_tiling"] == "on"
    assert settings["previews"] is False
    assert Path(settings["output_folder"]).is_relative_to(tmp_path)


def test_broken_files_of_ours_don_t_keep_the_window_from_opening(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    for name in ("settings.json", "window.json"):
        (tmp_path / "config" / name).write_text('{"theme": ')
    told = play("told.update(said=window.column.notice.sentence)\nwindow.close()", tmp_path)
    assert told["status"] == 0
    for name in ("settings", "window"):
        assert f"kept as {name}.damaged-1.json" in str(told["said"])
        assert (tmp_path / "config" / f"{name}.damaged-1.json").read_text() == '{"theme": '


def test_a_thread_inside_native_code_is_not_run_over_at_the_end(tmp_path: Path) -> None:
    """The process ends although a thread never does, and with the log written."""
    told = play("threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\nwindow.close()", tmp_path)
    assert told["status"] == 0
    assert "first paint" in (tmp_path / "logs" / "safelight.log").read_text()


def test_a_model_that_is_not_there_is_said_in_a_sentence(tmp_path: Path) -> None:
    program = (
        "import sys, app.main, app.start\n"
        f"app.main.MODEL = {str(tmp_path / 'gone')!r}\n"
        "sys.exit(app.start.run_window([]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen", "SAFELIGHT_HOME": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 1
    assert "doesn't exist" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_window_that_is_closed_before_it_is_filled_ends_the_program(tmp_path: Path) -> None:
    program = (
        "import sys, app.start\n"
        "from PySide6.QtCore import QTimer\n"
        "class Closing(app.start.Shell):\n"
        "    def showEvent(self, event):\n"
        "        self.close()\n"
        "app.start.Shell = Closing\n"
        "status = app.start.run_window([])\n"
        "sys.exit(status if 'app.main' not in sys.modules else 3)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60,
        env=os.environ | {"QT_QPA_PLATFORM": "offscreen", "SAFELIGHT_HOME": str(tmp_path)},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
