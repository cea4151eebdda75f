"""The log file: everything worth knowing after something went wrong, unhandled exceptions included."""

from __future__ import annotations

import asyncio
import logging
import logging.handlers
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

log = logging.getLogger("safelight")

MAX_BYTES = 1_000_000
KEPT_FILES = 3
_FORMAT = "%(asctime)s %(levelname)s %(threadName)s %(name)s: %(message)s"


def start(folder: Path) -> Path | None:
    """Log to a rotating `safelight.log` in `folder`. Returns the file, or None where the folder can't be written.

    Without a file the log goes to stderr: a full disk must not keep the window from opening.
    """
    path = folder / "safelight.log"
    handler: logging.Handler
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handler = logging.handlers.RotatingFileHandler(
            path, maxBytes=MAX_BYTES, backupCount=KEPT_FILES, encoding="utf-8"
        )
        written: Path | None = path
    except OSError:
        handler, written = logging.StreamHandler(), None
    handler.setFormatter(logging.Formatter(_FORMAT))
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    sys.excepthook = _log_unhandled
    threading.excepthook = lambda args: _log_unhandled(
        args.exc_type, args.exc_value or args.exc_type(), args.exc_traceback
    )
    return written


def _log_unhandled(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    if not issubclass(kind, KeyboardInterrupt):
        log.critical("unhandled exception", exc_info=(kind, error, traceback))
    sys.__excepthook__(kind, error, traceback)  # for whoever started the program in a terminal


def log_loop_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:  # noqa: ARG001
    """Exception handler for an asyncio loop."""
    error = context.get("exception")
    log.error("in the event loop: %s", context.get("message"), exc_info=error if error is not None else False)
