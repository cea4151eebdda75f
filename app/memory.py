"""How much memory the program takes, the processes that build and run its plans included."""

from __future__ import annotations


def used() -> int:
    """Bytes, of this process and every one below it. Takes milliseconds: not for the window's thread.

    Where the system tells it, each process counts its share of the pages that several use (PSS), else the whole of
    them (RSS), which counts shared libraries several times.
    """
    import psutil  # a native module: whoever imports it before the first paint waits for it

    own = psutil.Process()
    total = 0
    for process in (own, *own.children(recursive=True)):
        try:
            whole = process.memory_full_info()
            total += getattr(whole, "pss", 0) or whole.rss
        except psutil.Error:  # it has ended, or isn't ours to ask
            continue
    return total


def free() -> int:
    """Bytes that programs can still take before the machine has to swap."""
    import psutil

    return int(psutil.virtual_memory().available)
