"""What every test needs before Qt is imported."""

from __future__ import annotations

import os

# child processes inherit it; tests that need a real X server ask for one themselves
if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ.setdefault("PYTEST_QT_API", "pyside6")
