"""What the window's start changes for a while, and for good."""

from __future__ import annotations

import subprocess
import sys


def _in_a_fresh_interpreter(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_reads_no_sources_once_the_window_is_on_its_way() -> None:
    code = (
        "import linecache; from app import quick_start; quick_start.begin(); import tomllib; "
        "print(tomllib.__file__ in linecache.cache)"
    )
    assert _in_a_fresh_interpreter(code) == "False\n"


def test_the_collector_rests_until_the_end() -> None:
    code = (
        "import gc; from app import quick_start; quick_start.begin(); resting = not gc.isenabled(); "
        "quick_start.end(); print(resting, gc.isenabled(), gc.get_freeze_count() > 0)"
    )
    assert _in_a_fresh_interpreter(code) == "True True True\n"
