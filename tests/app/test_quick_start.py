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


def test_what_no_first_paint_shows_is_not_imported_for_it() -> None:
    code = (
        "import sys; import app.main; "
        "print([name for name in ('psutil', 'torch', 'app.settings.dialog', 'app.keys_dialog', 'plistlib') "
        "if name in sys.modules])"
    )
    assert _in_a_fresh_interpreter(code) == "[]\n"


def test_the_engine_is_imported_beside_qt_and_without_it() -> None:
    code = (
        "import sys; from app import quick_start; quick_start.import_beside().join(); "
        "print('engine.engine' in sys.modules, any(name.startswith('PySide6') for name in sys.modules))"
    )
    assert _in_a_fresh_interpreter(code) == "True False\n"
