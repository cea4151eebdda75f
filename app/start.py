"""From the command to a window on the screen: as little as possible, and the rest after it."""

from __future__ import annotations

import sys
import time

from PySide6.QtCore import QEventLoop, QTimer
from PySide6.QtWidgets import QApplication

from app import __version__, folders, quick_start
from app.shell import FirstLook, Shell

PATIENCE = 500  # ms; a window that starts minimised or on another desktop isn't painted


def run_window(arguments: list[str]) -> int:
    """Open the window and run until it is closed. `arguments` are Qt's; returns the exit status."""
    started = time.perf_counter()
    folders.prepare_environment()
    imports = quick_start.import_beside()
    # named here, as setting the style later hands it to Python, with hundreds of enums
    application = QApplication([sys.argv[0], "-style", "fusion", *arguments])
    application.setApplicationName(folders.NAME)
    application.setApplicationVersion(__version__)
    application.setDesktopFileName("safelight")
    shell = Shell(FirstLook.read(folders.settings_file(), folders.window_file()))
    _show(shell)
    imports.join()
    if shell.is_closed:
        return 0
    from app.main import run

    return run(application, shell, started)


def _show(shell: Shell) -> None:
    """Show the frame and come back when it is painted. No other loop runs yet, so this one is nested in none."""
    loop = QEventLoop()
    shell.painted.connect(loop.quit)
    shell.closed.connect(loop.quit)
    QTimer.singleShot(PATIENCE, loop.quit)
    shell.show()
    loop.exec()
