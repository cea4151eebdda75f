"""The backends by name: which kinds of plan each makes, which is right for a device, and why one can't be used."""

from __future__ import annotations

from engine.plans import inductor, openvino
from engine.plans.plan import INDUCTOR, OPENVINO_DYNAMIC, OPENVINO_STATIC
from engine.request import Backend

# Of each backend, best first: a picture takes the first kind that can run it from its first step to its last.
KINDS = {
    Backend.EAGER: (),
    Backend.OPENVINO: (OPENVINO_STATIC, OPENVINO_DYNAMIC),
    Backend.INDUCTOR: (INDUCTOR,),
}


def why_unavailable(backend: Backend, device: str = "cpu") -> str | None:
    """A sentence saying what `backend` lacks for a model on this torch device; None where it works."""
    if backend is Backend.OPENVINO:
        if device != "cpu":
            return f"OpenVINO plans run on the CPU, and this model runs on {device}. Choose inductor, or auto."
        return openvino.why_unavailable()
    if backend is Backend.INDUCTOR:
        return inductor.why_unavailable(device)
    return None


def automatic(device: str = "cpu") -> Backend:
    """What `Backend.AUTO` means on this torch device: OpenVINO on the CPU, inductor on CUDA, eager elsewhere."""
    preferred = {"cpu": Backend.OPENVINO, "cuda": Backend.INDUCTOR}.get(device, Backend.EAGER)
    return Backend.EAGER if why_unavailable(preferred, device) else preferred
