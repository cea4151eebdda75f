"""The very end of the process, where a library's thread may still be at work."""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading


def spare_native_threads(status: int) -> None:
    """Let the process end without its libraries' destructors where a thread may still be inside one of them.

    torch can't be interrupted while it is loaded, and is not to be waited for; its static data must stay until the
    thread that reads it is gone, which is at the very end of the process.
    """

    def end_at_once() -> None:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(status)

    if any(thread.daemon and thread.is_alive() for thread in threading.enumerate()):
        atexit.register(end_at_once)
