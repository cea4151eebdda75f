"""Samplers by the names people know, as diffusers schedulers. Which sampler a model can use is known without torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.errors import RequestRefused
from engine.request import Sampler

if TYPE_CHECKING:
    from diffusers import SchedulerMixin

EPSILON, V_PREDICTION, FLOW = "epsilon", "v_prediction", "flow_prediction"
PREDICTIONS = (EPSILON, V_PREDICTION, FLOW)


@dataclass(frozen=True)
class _Recipe:
    """A scheduler class of diffusers with what this sampler overrides; `flow` is its form for flow matching."""

    scheduler: str
    overrides: dict[str, Any] = field(default_factory=dict)
    flow: tuple[str, dict[str, Any]] | None = None
    evaluations: int = 1


_FLOW_SIGMAS = {"use_flow_sigmas": True, "prediction_type": FLOW}
_RECIPES = {
    Sampler.EULER: _Recipe("EulerDiscreteScheduler", flow=("FlowMatchEulerDiscreteScheduler", {})),
    Sampler.EULER_A: _Recipe("EulerAncestralDiscreteScheduler"),
    Sampler.DDIM: _Recipe("DDIMScheduler"),
    Sampler.DPMPP_2M: _Recipe("DPMSolverMultistepScheduler", flow=("DPMSolverMultistepScheduler", _FLOW_SIGMAS)),
    Sampler.DPMPP_2M_KARRAS: _Recipe("DPMSolverMultistepScheduler", {"use_karras_sigmas": True}),
    Sampler.DPMPP_SDE: _Recipe("DPMSolverSDEScheduler", evaluations=2),
    Sampler.UNIPC: _Recipe("UniPCMultistepScheduler", flow=("UniPCMultistepScheduler", _FLOW_SIGMAS)),
    Sampler.HEUN: _Recipe("HeunDiscreteScheduler", flow=("FlowMatchHeunDiscreteScheduler", {}), evaluations=2),
    Sampler.LCM: _Recipe("LCMScheduler"),
    Sampler.PNDM: _Recipe("PNDMScheduler", {"skip_prk_steps": True}),
}


def why_unusable(sampler: Sampler, prediction: str) -> str | None:
    """A sentence saying why a model with this prediction type can't use the sampler, or None where it can."""
    if prediction == FLOW and _RECIPES[sampler].flow is None:
        return f"{sampler} has no form for flow-matching models such as this one. Euler, Heun, UniPC and DPM++ 2M have."
    return None


def evaluations_per_step(sampler: Sampler) -> int:
    """How often the noise predictor runs in one step: 2 for the second-order single-step samplers."""
    return _RECIPES[sampler].evaluations


def make_scheduler(sampler: Sampler, config: dict[str, Any], seed: int) -> SchedulerMixin:
    """A fresh scheduler for one run, from the model's own scheduler config and the sampler's overrides.

    `seed` seeds the Brownian tree of DPM++ SDE; the other samplers draw from the generator handed to `step`.
    Raises `RequestRefused` where `why_unusable` gives a reason.
    """
    import diffusers

    prediction = prediction_type(config)
    if (reason := why_unusable(sampler, prediction)) is not None:
        raise RequestRefused(reason)
    recipe = _RECIPES[sampler]
    name, overrides = recipe.scheduler, dict(recipe.overrides)
    if prediction == FLOW and recipe.flow is not None:
        name, overrides = recipe.flow[0], dict(recipe.flow[1])
    if sampler is Sampler.DPMPP_SDE:
        overrides["noise_sampler_seed"] = seed
    inherited = {key: value for key, value in config.items() if not key.startswith("_")}
    return getattr(diffusers, name).from_config(inherited | overrides)


def prediction_type(config: dict[str, Any]) -> str:
    """ "epsilon", "v_prediction" or "flow_prediction", read from a scheduler's config."""
    if str(config.get("_class_name", "")).startswith("FlowMatch") or config.get("use_flow_sigmas"):
        return FLOW
    return str(config.get("prediction_type", EPSILON))
