"""The frozen program makes pictures: from its command line, by both backends, and in its window.

`make bundle` first, then `.venv/bin/python -m pytest -m slow tests/e2e/test_bundle.py`.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from app import __version__
from engine.pictures.metadata import read_settings

FOLDER = Path(os.environ.get("SAFELIGHT_BUNDLE", Path(__file__).parents[2] / "dist" / "safelight"))
PROGRAM = FOLDER / ("safelight.exe" if sys.platform == "win32" else "safelight")
SECONDS = 300.0  # no expectation, only an end to waiting for a program that hangs

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not PROGRAM.exists(), reason=f"there is no bundle at {FOLDER}: run 'make bundle' first"),
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of a machine without Python: nothing of the checkout or of this interpreter can be found by accident."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "VIRTUAL_ENV", "QT_"))}
    return kept | {"SAFELIGHT_HOME": str(tmp_path / "home"), "HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}


def generate(environment: dict[str, str], folder: Path, *options: str) -> Path:
    command = [str(PROGRAM), "generate", "a red apple, 3d style", "--seed", "7", "--steps", "4", *options]
    ended = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=SECONDS)
    assert ended.returncode == 0, ended.stderr
    return Path(ended.stdout.strip())


def test_the_version_is_the_programs(environment: dict[str, str]) -> None:
    ended = subprocess.run([str(PROGRAM), "--version"], env=environment, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (0, f"Safelight {__version__}\n")


def test_the_command_line_makes_a_picture_eagerly(environment: dict[str, str], tmp_path: Path) -> None:
    request, made_with = read_settings(generate(environment, tmp_path, "--backend", "eager"))
    assert (request.seed, request.steps, made_with.plan) == (7, 4, "eager")


def test_the_command_line_makes_a_picture_with_a_plan(environment: dict[str, str], tmp_path: Path) -> None:
    _, made_with = read_settings(generate(environment, tmp_path, "--backend", "openvino"))
    assert made_with.plan.startswith("openvino")


@pytest.mark.x11
@pytest.mark.skipif(
    not os.environ.get("DISPLAY") or shutil.which("xdotool") is None, reason="there is no X server, or no xdotool"
)
def test_the_window_makes_a_picture(environment: dict[str, str], tmp_path: Path) -> None:
    # A folder where none is made for it yet: the program makes its own.
    pictures = tmp_path / "home" / "pictures"
    window = subprocess.Popen([str(PROGRAM)], env=environment, cwd=tmp_path)
    try:
        found = xdotool("search", "--sync", "--onlyvisible", "--name", "Safelight").split()
        xdotool("windowfocus", "--sync", found[0])
        xdotool("type", "a red apple, 3d style")
        xdotool("key", "ctrl+Return")
        wait_for(window, lambda: any(pictures.glob("*.png")))
        request, _ = read_settings(next(pictures.glob("*.png")))
        assert request.prompt == "a red apple, 3d style"
        window.send_signal(signal.SIGINT)
        assert window.wait(SECONDS) == 0
    finally:
        window.kill()
        window.wait()


def xdotool(*arguments: str) -> str:
    return subprocess.run(["xdotool", *arguments], capture_output=True, text=True, check=True, timeout=SECONDS).stdout


def wait_for(program: subprocess.Popen[bytes], condition: Callable[[], bool]) -> None:
    """Wait until the condition holds while the program lives."""
    for _ in range(int(SECONDS / 0.1)):
        if condition():
            return
        try:
            status = program.wait(0.1)
        except subprocess.TimeoutExpired:
            continue
        raise AssertionError(f"the program ended with {status}")
    raise AssertionError("the program did nothing in time")
