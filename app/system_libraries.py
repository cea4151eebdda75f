"""What the window needs of the system, looked at before Qt is, which would end the process without a word.

PySide6 brings Qt along but not the libraries of the desktop below it. They are tried out one by one; whoever lacks
some learns which packages bring them.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Packages(NamedTuple):
    """Who brings a library, by family of distributions."""

    debian: str
    fedora: str
    arch: str


# What Qt's own libraries link to: `readelf -d` of libQt6Core, libQt6DBus, libQt6Gui and the platform plugins.
ALWAYS = {
    "libglib-2.0.so.0": Packages("libglib2.0-0", "glib2", "glib2"),
    "libgthread-2.0.so.0": Packages("libglib2.0-0", "glib2", "glib2"),
    "libEGL.so.1": Packages("libegl1", "libglvnd-egl", "libglvnd"),
    "libGL.so.1": Packages("libgl1", "libglvnd-glx", "libglvnd"),
    "libX11.so.6": Packages("libx11-6", "libX11", "libx11"),
    "libfontconfig.so.1": Packages("libfontconfig1", "fontconfig", "fontconfig"),
    "libfreetype.so.6": Packages("libfreetype6", "freetype", "freetype2"),
    "libxkbcommon.so.0": Packages("libxkbcommon0", "libxkbcommon", "libxkbcommon"),
    "libdbus-1.so.3": Packages("libdbus-1-3", "dbus-libs", "dbus"),
    "libz.so.1": Packages("zlib1g", "zlib", "zlib"),
    "libzstd.so.1": Packages("libzstd1", "libzstd", "zstd"),
}
XCB = {
    "libxkbcommon-x11.so.0": Packages("libxkbcommon-x11-0", "libxkbcommon-x11", "libxkbcommon-x11"),
    "libX11-xcb.so.1": Packages("libx11-xcb1", "libX11-xcb", "libx11"),
    "libxcb.so.1": Packages("libxcb1", "libxcb", "libxcb"),
    "libxcb-cursor.so.0": Packages("libxcb-cursor0", "xcb-util-cursor", "xcb-util-cursor"),
    "libxcb-icccm.so.4": Packages("libxcb-icccm4", "xcb-util-wm", "xcb-util-wm"),
    "libxcb-image.so.0": Packages("libxcb-image0", "xcb-util-image", "xcb-util-image"),
    "libxcb-keysyms.so.1": Packages("libxcb-keysyms1", "xcb-util-keysyms", "xcb-util-keysyms"),
    "libxcb-randr.so.0": Packages("libxcb-randr0", "libxcb", "libxcb"),
    "libxcb-render.so.0": Packages("libxcb-render0", "libxcb", "libxcb"),
    "libxcb-render-util.so.0": Packages("libxcb-render-util0", "xcb-util-renderutil", "xcb-util-renderutil"),
    "libxcb-shape.so.0": Packages("libxcb-shape0", "libxcb", "libxcb"),
    "libxcb-shm.so.0": Packages("libxcb-shm0", "libxcb", "libxcb"),
    "libxcb-sync.so.1": Packages("libxcb-sync1", "libxcb", "libxcb"),
    "libxcb-util.so.1": Packages("libxcb-util1", "xcb-util", "xcb-util"),
    "libxcb-xfixes.so.0": Packages("libxcb-xfixes0", "libxcb", "libxcb"),
    "libxcb-xkb.so.1": Packages("libxcb-xkb1", "libxcb", "libxcb"),
}
WAYLAND = {
    "libwayland-client.so.0": Packages("libwayland-client0", "libwayland-client", "wayland"),
    "libwayland-cursor.so.0": Packages("libwayland-cursor0", "libwayland-cursor", "wayland"),
}
_PLATFORMS = {"xcb": XCB, "wayland": WAYLAND}

_INSTALL = {"debian": "apt-get install", "fedora": "dnf install", "arch": "pacman -S"}


def why_no_window(environment: Mapping[str, str] = os.environ, system: str = sys.platform) -> str | None:
    """A sentence saying why Qt can't open a window here and what to do, or None where it can."""
    if system != "linux":
        return None
    platforms = _platforms(environment)
    if not platforms:
        return (
            "There is no screen to open the window on: neither WAYLAND_DISPLAY nor DISPLAY is set. "
            "Without one, 'safelight generate PROMPT' makes pictures from here."
        )
    # Qt tries its platforms in turn, so one that is complete is enough.
    missing = [_missing(ALWAYS | _PLATFORMS.get(platform, {})) for platform in platforms]
    if all(missing):
        return _sentence(missing[0])
    if platforms == ["xcb"] and not _x_server_answers():
        return (
            f"The X server {environment.get('DISPLAY', '')} can't be reached: check DISPLAY and xauth. "
            "Without one, 'safelight generate PROMPT' makes pictures from here."
        )
    return None


def _platforms(environment: Mapping[str, str]) -> list[str]:
    """Qt's platforms in the order in which it would try them."""
    if chosen := environment.get("QT_QPA_PLATFORM"):
        names = [name.split(":")[0] for name in chosen.split(";")]
        return ["wayland" if name.startswith("wayland") else name for name in names if name]
    found = {"wayland": environment.get("WAYLAND_DISPLAY"), "xcb": environment.get("DISPLAY")}
    return [name for name, screen in found.items() if screen]


def _missing(libraries: Mapping[str, Packages]) -> dict[str, Packages]:
    return {name: packages for name, packages in libraries.items() if not _loads(name)}


def _loads(library: str) -> bool:
    bundle = getattr(sys, "_MEIPASS", None)
    try:
        ctypes.CDLL(library)
    except OSError:
        return bundle is not None and (Path(bundle) / library).exists()
    return True


def _x_server_answers() -> bool:
    xcb = ctypes.CDLL("libxcb.so.1")
    xcb.xcb_connect.restype = ctypes.c_void_p
    xcb.xcb_connection_has_error.argtypes = xcb.xcb_disconnect.argtypes = [ctypes.c_void_p]
    connection = xcb.xcb_connect(None, None)
    try:
        return not xcb.xcb_connection_has_error(connection)
    finally:
        xcb.xcb_disconnect(connection)


def _sentence(missing: Mapping[str, Packages]) -> str:
    family = _family()
    packages = sorted({getattr(brings, family) for brings in missing.values()})
    command = f"{_INSTALL[family]} {' '.join(packages)}"
    if os.geteuid() != 0:
        command = f"sudo {command}"
    return (
        f"The window needs system libraries that are missing here ({', '.join(missing)}). Install them with: {command}"
    )


def _family(release: Path = Path("/etc/os-release")) -> str:
    """The family of this distribution, from ID and ID_LIKE; Debian's where it says nothing known."""
    try:
        lines = release.read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    fields = dict(line.split("=", 1) for line in lines if "=" in line)
    names = f"{fields.get('ID', '')} {fields.get('ID_LIKE', '')}".replace('"', "").split()
    return next((name for name in names if name in _INSTALL), "debian")
