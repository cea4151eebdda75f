"""The whole program in a real window on a real X server, driven by keys and clicks and watched by its pixels."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest
from PIL import Image, ImageGrab

from app.settings.remembered import Remembered, RememberedForm
from app.style.tokens import DARK
from engine.pictures.metadata import read_settings
from engine.request import Backend, GenerationRequest

pytestmark = pytest.mark.x11

ROOT = Path(__file__).resolve().parents[2]
WIDTH, HEIGHT, COLUMN = 1280, 800, 320
PROMPT = "a red apple, 3d style"
# Long enough to be met in the middle, and eager whether or not a plan got ready.
REQUEST = GenerationRequest(steps=150, seed=7, backend=Backend.EAGER)
DEADLINE = 180  # seconds; far beyond what anything here takes
SHOTS = os.environ.get("SAFELIGHT_SHOTS")

T = TypeVar("T")


def need_x11() -> None:
    missing = None if os.environ.get("DISPLAY") else "there is no X server (DISPLAY is not set)"
    if missing is None and shutil.which("xdotool") is None:
        missing = "xdotool is not installed"
    if missing is not None:
        (pytest.fail if os.environ.get("SAFELIGHT_REQUIRE_X11") else pytest.skip)(f"the real window: {missing}")


def wait_for(what: str, condition: Callable[[], T]) -> T:
    """Ask until the answer is true; fail with `what` after a deadline."""
    end = time.monotonic() + DEADLINE
    while time.monotonic() < end:
        if answer := condition():
            return answer
        time.sleep(0.02)
    pytest.fail(f"waited in vain for {what}")


class Driven:
    """The program as a person has it: a window, a keyboard, a mouse, and a folder of pictures."""

    def __init__(self, home: Path) -> None:
        self.pictures = home / "pictures"
        environment = os.environ | {"SAFELIGHT_HOME": str(home), "PYTHONPATH": str(ROOT), "QT_QPA_PLATFORM": "xcb"}
        environment.pop("WAYLAND_DISPLAY", None)
        self.process = subprocess.Popen([sys.executable, "-m", "app"], env=environment, cwd=home)
        self.window = wait_for("the window", self._find).split()[-1]
        self.do("windowmove", self.window, "0", "0", "windowsize", self.window, str(WIDTH), str(HEIGHT))
        self.do("windowfocus", self.window)
        wait_for("the form", self.is_idle)

    def _find(self) -> str:
        found = subprocess.run(
            ["xdotool", "search", "--onlyvisible", "--pid", str(self.process.pid), "--name", "Safelight"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        return found.stdout.strip()

    def do(self, *words: str) -> None:
        subprocess.run(["xdotool", *words], check=True)

    def press(self, keys: str) -> None:
        self.do("key", "--clearmodifiers", keys)

    def write_prompt(self, text: str) -> None:
        self.press("ctrl+l")
        self.press("ctrl+a")
        self.do("type", "--delay", "20", text)

    def click(self, x: int, y: int) -> None:
        self.do("mousemove", str(x), str(y), "click", "1")

    def look(self, name: str | None = None) -> Image.Image:
        picture = ImageGrab.grab(bbox=(0, 0, WIDTH, HEIGHT), xdisplay=os.environ["DISPLAY"])
        if name and SHOTS:
            Path(SHOTS).mkdir(parents=True, exist_ok=True)
            picture.save(Path(SHOTS) / f"{name}.png")
        return picture

    def canvas(self) -> bytes:
        """The middle of the canvas, as it looks now."""
        middle = (COLUMN + WIDTH - 112) // 2
        return self.look().crop((middle - 200, 200, middle + 200, 600)).tobytes()

    def is_idle(self) -> bool:
        """Whether the one filled button says Generate: the lamp's colour fills a good part of the column."""
        column = self.look().crop((0, 0, COLUMN, 300))
        accent = tuple(int(DARK.accent[i : i + 2], 16) for i in (1, 3, 5))
        return sum(n for n, colour in column.getcolors(1 << 20) or [] if colour == accent) > 3000

    def files(self) -> list[Path]:
        return sorted(self.pictures.glob("*")) if self.pictures.exists() else []

    def start_and_see_previews(self, kinds: int) -> None:
        """Press Ctrl+Return and watch until the canvas has shown so many pictures, all before the run ends."""
        before = self.files()
        seen = {self.canvas()}
        self.press("ctrl+Return")
        wait_for("a run", lambda: not self.is_idle())

        def enough() -> bool:
            seen.add(self.canvas())
            assert self.process.poll() is None
            return len(seen) > kinds

        wait_for("changing previews", enough)
        assert self.files() == before, "the previews came before the picture"


@pytest.fixture
def driven(tmp_path: Path) -> Iterator[Driven]:
    need_x11()
    config = tmp_path / "config"
    config.mkdir()
    remembered = Remembered(form=RememberedForm(request=REQUEST, random_seed=False))
    (config / "window.json").write_text(remembered.model_dump_json())
    (config / "settings.json").write_text('{"theme": "dark"}')
    driven = Driven(tmp_path)
    yield driven
    if driven.process.poll() is None:
        driven.process.kill()
        driven.process.wait()


def test_type_watch_stop_restore_and_close(driven: Driven) -> None:
    driven.look("empty")
    driven.write_prompt(PROMPT)
    driven.start_and_see_previews(3)
    driven.look("preview")
    wait_for("the picture's file", driven.files)
    wait_for("the end of the run", driven.is_idle)
    driven.look("finished")
    (first,) = driven.files()
    assert read_settings(first)[0] == REQUEST.model_copy(update={"prompt": PROMPT})

    driven.write_prompt("a green frog")
    driven.start_and_see_previews(2)
    driven.press("Escape")
    wait_for("the cancel", driven.is_idle)
    driven.look("cancelled")
    assert driven.files() == [first]

    driven.click(WIDTH - 56, 56)
    driven.start_and_see_previews(1)
    wait_for("the restored settings' picture", lambda: len(driven.files()) == 2)
    wait_for("the end of the run", driven.is_idle)
    second = next(path for path in driven.files() if path != first)
    assert read_settings(second) == read_settings(first)
    assert Image.open(second).tobytes() == Image.open(first).tobytes()

    driven.start_and_see_previews(1)
    children = psutil.Process(driven.process.pid).children(recursive=True)
    driven.press("ctrl+q")
    assert driven.process.wait(DEADLINE) == 0
    psutil.wait_procs(children, timeout=DEADLINE)
    assert not any(child.is_running() for child in children)
    assert len(driven.files()) == 2
    assert not list(driven.pictures.glob(".*"))
