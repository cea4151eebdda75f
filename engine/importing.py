"""Importing torch and diffusers without freezing the window.

Two things hold the interpreter lock for hundreds of milliseconds: loading torch's shared libraries (static
initialisers run inside the import) and the garbage collector, which walks every object again and again while
tens of thousands of modules, functions and classes appear. So the libraries are loaded first by a foreign call, which
runs without the lock, and the collector rests until the import is done; what was imported is then frozen, since it
stays for good.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.util
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

_lock = threading.Lock()
_done = False


def import_torch() -> None:
    """Import torch, diffusers and transformers, once. Takes seconds: not for the Qt thread."""
    global _done
    with _lock:
        if _done:
            return
        with collector_resting():
            if "torch" not in sys.modules:
                _load_libraries()
            import torch
            import transformers
            from diffusers import AutoencoderKL, UNet2DConditionModel  # noqa: F401

            transformers.utils.logging.set_verbosity_error()
            transformers.utils.logging.disable_progress_bar()
            torch.set_grad_enabled(False)
        _done = True


@contextlib.contextmanager
def collector_resting() -> Iterator[None]:
    """No garbage collection inside; afterwards everything alive is frozen: the collector never walks it again.

    After an exception nothing is frozen, since its traceback holds on to what was left unfinished.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        if was_enabled:
            gc.enable()


def _load_libraries() -> None:
    spec = importlib.util.find_spec("torch")
    if sys.platform == "win32" or spec is None or spec.origin is None:
        return
    suffix = ".dylib" if sys.platform == "darwin" else ".so"
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.restype, dlopen.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_int]
    for name in ("libc10", "libtorch_cpu", "libtorch", "libtorch_python"):
        library = Path(spec.origin).parent / "lib" / f"{name}{suffix}"
        if library.exists():
            dlopen(os.fsencode(library), os.RTLD_NOW)
