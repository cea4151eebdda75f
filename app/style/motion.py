"""Whether things may move: what the system says, where it says anything."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path


@cache
def motion_wanted() -> bool:
    """False where the user turned animations off in the system's settings. Read once per start.

    Windows: "Animation effects". macOS: "Reduce motion". KDE: animation speed at its end. GNOME: "Animations", as its
    settings file for GTK programs tells it. Anywhere else things may move.
    """
    import configparser

    try:
        if sys.platform == "win32":
            return _windows()
        if sys.platform == "darwin":
            return _macos()
        return _kde() and _gtk()
    except (OSError, ValueError, configparser.Error):
        return True


def _windows() -> bool:
    import ctypes

    get_client_area_animation = 0x1042
    enabled = ctypes.c_int(1)
    ctypes.windll.user32.SystemParametersInfoW(  # type: ignore[attr-defined, unused-ignore]
        get_client_area_animation, 0, ctypes.byref(enabled), 0
    )
    return bool(enabled.value)


def _macos() -> bool:
    import plistlib

    path = Path.home() / "Library/Preferences/com.apple.universalaccess.plist"
    return not plistlib.loads(path.read_bytes()).get("reduceMotion", False)


def _kde() -> bool:
    return _ini_value("kdeglobals", "KDE", "AnimationDurationFactor") not in ("0", "0.0")


def _gtk() -> bool:
    files = ("gtk-4.0/settings.ini", "gtk-3.0/settings.ini")
    values = [_ini_value(file, "Settings", "gtk-enable-animations") for file in files]
    return not any(value.lower() in ("0", "false") for value in values)


def _ini_value(file: str, section: str, key: str) -> str:
    import configparser

    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.read(Path.home() / ".config" / file, encoding="utf-8")
    return parser.get(section, key, fallback="")
