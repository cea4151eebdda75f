"""Entry of the engine's child processes, `--plan-converter` and `--plan-worker`, which speak over stdin and stdout."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from engine.plans.wire import Wire


def main(arguments: Sequence[str]) -> int:
    """Serve until the parent closes the pipe. Whatever a library prints goes to stderr, never among the messages."""
    outgoing = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    wire = Wire(os.fdopen(os.dup(sys.stdin.fileno()), "rb"), outgoing)
    if arguments[0] == "--plan-converter":
        from engine.plans import converter

        converter.serve(wire)
    else:
        from engine.plans import worker

        worker.serve(wire)
    outgoing.flush()
    os._exit(0)  # nothing here needs cleaning up, and native threads may still be at work


if __name__ == "__main__":
    main(sys.argv[1:])
