"""Whoever lacks a system library or a screen reads one sentence and knows what to do."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app import system_libraries
from app.system_libraries import ALWAYS, WAYLAND, XCB, why_no_window

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Qt brings what it needs on other systems")

X_SCREEN = {"DISPLAY": ":0"}


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of libraries that this system shall not have; it has every other."""
    names: set[str] = set()

    def load(name: str) -> None:
        if name in names:
            raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", load)
    monkeypatch.setattr(system_libraries, "_x_server_answers", lambda: True)
    monkeypatch.setattr(system_libraries, "_family", lambda: "debian")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return names


def test_a_complete_system_opens_the_window(absent: set[str]) -> None:
    assert absent == set()
    assert why_no_window(X_SCREEN) is None


def test_missing_libraries_name_the_packages_that_bring_them(absent: set[str]) -> None:
    absent |= {"libEGL.so.1", "libxcb-cursor.so.0"}
    assert why_no_window(X_SCREEN) == (
        "The window needs system libraries that are missing here (libEGL.so.1, libxcb-cursor.so.0). "
        "Install them with: sudo apt-get install libegl1 libxcb-cursor0"
    )


@pytest.mark.parametrize(
    ("family", "command"), [("fedora", "dnf install xcb-util-wm"), ("arch", "pacman -S xcb-util-wm")]
)
def test_other_distributions_read_their_own_command(
    absent: set[str], monkeypatch: pytest.MonkeyPatch, family: str, command: str
) -> None:
    absent |= {"libxcb-icccm.so.4"}
    monkeypatch.setattr(system_libraries, "_family", lambda: family)
    assert (why_no_window(X_SCREEN) or "").endswith(f"sudo {command}")


def test_root_needs_no_sudo(absent: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    absent |= {"libGL.so.1"}
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (why_no_window(X_SCREEN) or "").endswith("with: apt-get install libgl1")


@pytest.mark.parametrize(
    ("environment", "missing", "opens"),
    [
        ({"WAYLAND_DISPLAY": "wayland-0"}, "libxcb-cursor.so.0", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "libwayland-client.so.0", False),
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "libwayland-client.so.0", True),
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, "libEGL.so.1", False),
        ({"QT_QPA_PLATFORM": "offscreen"}, "libxcb-cursor.so.0", True),
        ({"QT_QPA_PLATFORM": "xcb", "WAYLAND_DISPLAY": "wayland-0"}, "libxcb-cursor.so.0", False),
        ({"QT_QPA_PLATFORM": "wayland-egl;xcb:x"}, "libxcb-cursor.so.0", True),
    ],
)
def test_only_what_the_platform_in_use_needs_is_asked_for(
    absent: set[str], environment: dict[str, str], missing: str, opens: bool
) -> None:
    absent |= {missing}
    reason = why_no_window(environment)
    assert (reason is None) == opens
    assert opens or missing in (reason or "")


def test_without_a_screen_the_command_line_is_pointed_out(absent: set[str]) -> None:
    assert absent == set()
    reason = why_no_window({})
    assert reason is not None
    assert "no screen" in reason
    assert "safelight generate" in reason


def test_an_x_server_that_doesnt_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DISPLAY", ":7654321")
    reason = why_no_window({"DISPLAY": ":7654321"})
    assert reason is not None
    assert "X server :7654321" in reason or "missing" in reason


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_other_systems_are_left_alone(system: str) -> None:
    assert why_no_window({}, system) is None


@pytest.mark.parametrize(
    ("release", "family"),
    [
        ("ID=debian\n", "debian"),
        ('NAME="Linux Mint"\nID=linuxmint\nID_LIKE="ubuntu debian"\n', "debian"),
        ('ID="almalinux"\nID_LIKE="rhel centos fedora"\n', "fedora"),
        ("ID=manjaro\nID_LIKE=arch\n", "arch"),
        ("ID=gentoo\n", "debian"),
    ],
)
def test_the_family_is_read_from_os_release(tmp_path: Path, release: str, family: str) -> None:
    (tmp_path / "os-release").write_text(release)
    assert system_libraries._family(tmp_path / "os-release") == family


def test_the_program_ends_with_the_sentence_and_without_qt() -> None:
    environment = {
        key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    }
    program = [sys.executable, "-m", "app"]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("There is no screen")
    assert len(ended.stderr.splitlines()) == 1


@pytest.mark.skipif(shutil.which("readelf") is None, reason="readelf (binutils) is not installed")
def test_the_lists_are_what_qt_links_to() -> None:
    spec = importlib.util.find_spec("PySide6")
    assert spec is not None
    assert spec.origin is not None
    qt = Path(spec.origin).parent / "Qt"
    own = ("Core", "DBus", "Gui", "Widgets", "Svg")
    base = {library for name in own for library in linked(qt / "lib" / f"libQt6{name}.so.6")}
    assert base <= set(ALWAYS)
    assert linked(qt / "plugins/platforms/libqxcb.so") | linked(qt / "lib/libQt6XcbQpa.so.6") <= {*ALWAYS, *XCB}
    assert linked(qt / "plugins/platforms/libqwayland.so") <= {*ALWAYS, *WAYLAND}


def linked(library: Path) -> set[str]:
    """What a library links to, besides Qt's own and what every system with Python has."""
    dump = subprocess.run(["readelf", "-d", str(library)], capture_output=True, text=True, check=True).stdout
    everywhere = re.compile(r"libQt6|libicu|lib(c|m|dl|rt|pthread|gcc_s|stdc\+\+)\.so|ld-linux")
    return {name for name in re.findall(r"NEEDED.*\[(.+)\]", dump) if not everywhere.match(name)}
