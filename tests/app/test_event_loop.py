"""The Qt loop as asyncio's, under load from other threads."""

from __future__ import annotations

import json
import os
import subprocess
import sys

CALLS = 5_000

# True is counted because a Qt binding that drops a reference to it at each signal ends the process some time later
_PROGRAM = """
import asyncio, json, sys, threading
import qasync
from PySide6.QtWidgets import QApplication

calls = int(sys.argv[1])
application = QApplication([])
application.setQuitOnLastWindowClosed(False)
loop = qasync.QEventLoop(application)

async def main():
    taken, done = [], asyncio.Event()

    def take(number):
        taken.append(number)
        if number == calls - 1:
            done.set()

    def send():
        for number in range(calls):
            loop.call_soon_threadsafe(take, number)

    before = sys.getrefcount(True)
    thread = threading.Thread(target=send)
    thread.start()
    await done.wait()
    thread.join()
    return {"taken": taken, "refs_lost": before - sys.getrefcount(True)}

print(json.dumps(loop.run_until_complete(main())))
loop.close()
"""


def test_thousands_of_calls_from_another_thread_leave_the_process_intact() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(CALLS)],
        capture_output=True, text=True, check=False, env=os.environ | {"QT_QPA_PLATFORM": "offscreen"},
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["taken"] == list(range(CALLS))
    assert told["refs_lost"] < CALLS / 100
