"""The inductor backend: torch.compile in a child process, for CUDA and for CPUs with a C++ compiler.

Its artefacts are code and pickles. They stay out of the plan store, in torch's own cache inside the plan folder, which
only this user may enter. CUDA has not yet been run on hardware.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from engine.cancellation import CancellationToken
from engine.errors import PlanFailed
from engine.plans.plan import INDUCTOR, Signature
from engine.plans.process_plan import ProcessPlan

_COMPILERS = ("cl",) if sys.platform == "win32" else ("g++", "clang++", "c++")


def why_unavailable(device: str = "cpu") -> str | None:
    """A sentence saying why torch.compile can't be used on this device, or None."""
    if getattr(sys, "frozen", False):
        return "torch.compile isn't part of the packaged program. Run Safelight from its source to use it."
    if device == "mps":
        return "torch.compile isn't used on Apple GPUs; the eager backend is."
    if device in ("cuda", "xpu"):
        if importlib.util.find_spec("triton") is None:
            return "torch.compile needs Triton for this GPU. Install a torch build that brings it."
        return None
    wanted = os.environ.get("CXX")
    if not any(shutil.which(name) for name in ((wanted,) if wanted else _COMPILERS)):
        return "torch.compile needs a C++ compiler, and none was found. Install g++, or choose OpenVINO."
    return None


class InductorPlan(ProcessPlan):
    """A component compiled by torch.compile for one signature, in f32 on the CPU and in the model's f16 on a GPU."""

    def __init__(
        self,
        folder: Path,
        component: str,
        signature: Signature,
        cache: Path,
        device: str = "cpu",
        token: CancellationToken = CancellationToken.none,
        threads: int = 0,
        adapted: tuple[str, ...] = (),
    ) -> None:
        """Load `component` of the model in `folder` and compile it; minutes for a large model, seconds once cached.

        Raises `PlanFailed` with the reason, and `OperationCancelled`.
        """
        if signature.is_open:
            raise PlanFailed("torch.compile makes plans for fixed sizes.")
        cache.mkdir(mode=0o700, parents=True, exist_ok=True)
        load = (str(folder), component, signature.inputs, str(cache), device, threads, adapted)
        super().__init__(INDUCTOR, "inductor", load, f"torch.compile can't compile the {component}", token)
