"""The OpenVINO backend: modules converted once, compiled for fixed sizes or for every size, in f32 on the CPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from engine.cancellation import CancellationToken
from engine.plans.plan import OPENVINO_DYNAMIC, OPENVINO_STATIC, Signature
from engine.plans.process_plan import ProcessPlan


def why_unavailable() -> str | None:
    """A sentence saying why OpenVINO can't be used here, or None."""
    if importlib.util.find_spec("openvino") is None:
        return "OpenVINO isn't installed. Install it with: pip install openvino"
    return None


class OpenVinoPlan(ProcessPlan):
    """A converted model compiled for one signature: for its sizes, or for every size where the signature is open."""

    def __init__(
        self,
        path: Path,
        signature: Signature,
        token: CancellationToken = CancellationToken.none,
        threads: int = 0,
        from_store: bool = False,
    ) -> None:
        """Read and compile the model at `path` (.xml). `threads` 0 leaves their number to OpenVINO.

        Raises `PlanFailed` with OpenVINO's reason, and `OperationCancelled`.
        """
        shapes = None if signature.is_open else [shape for shape, _ in signature.inputs]
        kind = OPENVINO_DYNAMIC if signature.is_open else OPENVINO_STATIC
        refusal = f"OpenVINO can't compile {path.name}"
        super().__init__(kind, "openvino", (str(path), shapes, threads), refusal, token, from_store)
