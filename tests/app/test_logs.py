from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

_PROGRAM = """
import sys, threading
from pathlib import Path
from app import logs
logs.start(Path(sys.argv[1]))
thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start(); thread.join()
raise LookupError("nobody caught this")
"""


def test_what_nobody_caught_is_in_the_log(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM, str(tmp_path)], capture_output=True, check=False)
    written = (tmp_path / "safelight.log").read_text()
    assert "ZeroDivisionError" in written
    assert "worker" in written
    assert "LookupError: nobody caught this" in written


def test_a_folder_that_cannot_be_written_does_not_stop_the_program(tmp_path: Path) -> None:
    in_the_way = tmp_path / "file"
    in_the_way.write_text("")
    program = "import sys; from pathlib import Path; from app import logs; assert logs.start(Path(sys.argv[1])) is None"
    subprocess.run([sys.executable, "-c", program, str(in_the_way / "logs")], check=True)


def test_this_process_keeps_its_own_hooks() -> None:
    assert sys.excepthook.__module__ != "app.logs"
    assert threading.excepthook.__module__ != "app.logs"
    assert not any(type(handler).__name__ == "RotatingFileHandler" for handler in logging.getLogger().handlers)
