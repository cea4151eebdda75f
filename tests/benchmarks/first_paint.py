"""Opens a window and says when it was painted for the first time; `startup` runs it as a child process.

`ours` is the program as its command starts it, with its loop going on until it is closed or killed; `bare` an empty
QMainWindow. Both print the time of `time.monotonic`, which is the same clock in every process, once what they painted
is on its way to the screen; `ours` once more when the window's contents have followed its frame. `close` starts a run
at that moment, closes the window when the event named has come, and prints when that was.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.benchmarks.driven_window import Driven

STEPS = 150  # so many that the run is in its middle whenever it is closed


def main(arguments: Sequence[str]) -> int:
    if arguments[0] == "bare":
        return _bare()
    if arguments[0] == "ours":
        return _ours()
    return _close(arguments[1])


def _say_now() -> None:
    print(time.monotonic(), flush=True)


def _bare() -> int:
    from PySide6.QtCore import QTimer
    from PySide6.QtGui import QPaintEvent
    from PySide6.QtWidgets import QApplication, QMainWindow

    class Bare(QMainWindow):
        painted = False

        def paintEvent(self, event: QPaintEvent) -> None:
            super().paintEvent(event)
            if not self.painted:
                self.painted = True
                QTimer.singleShot(0, _say_now)

    application = QApplication(sys.argv[:1])
    window = Bare()
    window.resize(1280, 860)
    window.show()
    return application.exec()


def _ours() -> int:
    from app import command_line, quick_start

    quick_start.begin()  # as the command does, before it imports the window
    import app.start
    from app.shell import Shell

    class Announcing(Shell):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.painted.connect(_say_now)

        def fill(self, content: Any) -> None:
            content.first_painted.connect(_say_now)
            super().fill(content)

    vars(app.start).update(Shell=Announcing)
    return command_line.main([])


def _close(moment: str) -> int:
    from engine.events import Loading, Step
    from tests.benchmarks.driven_window import open_window, until

    awaited = {"loading": Loading, "step": Step}[moment]

    def begin(driven: Driven) -> None:
        driven.studio.form.prompt = "a red apple"
        driven.studio.form.steps = STEPS
        driven.studio.generate()

    async def drive(driven: Driven) -> None:
        def came() -> bool:
            return any(event.kind is awaited for event in driven.heard)

        await until(came, driven.studio.progress_changed, driven.studio.running_changed)
        _say_now()  # the driver's end closes the window

    return open_window(drive, begin)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
