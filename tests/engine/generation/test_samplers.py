"""Every sampler makes what diffusers makes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from engine.cancellation import CancellationToken
from engine.errors import RequestRefused
from engine.events import RgbImage
from engine.generation.samplers import evaluations_per_step, make_scheduler, prediction_type
from engine.request import Backend, EngineSettings, GenerationRequest, Sampler
from resources import STARTER_MODEL

if TYPE_CHECKING:
    from engine.generation.generate import Painter
    from engine.models.model import Model

pytestmark = pytest.mark.usefixtures("torch_imported")

WIDTH, HEIGHT, SEED, GUIDANCE = 96, 64, 7, 4.0
PROMPT, NEGATIVE = "a red apple, 3d style", "blurry"


@pytest.fixture(scope="module")
def pipeline(torch_imported: None) -> Any:
    import torch
    from diffusers import StableDiffusionPipeline

    pipeline = StableDiffusionPipeline.from_pretrained(
        STARTER_MODEL, safety_checker=None, local_files_only=True, torch_dtype=torch.float32
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


@pytest.fixture(scope="module")
def painter(starter: Model) -> Painter:
    from engine.generation.generate import Painter

    return Painter(starter, "test")


async def ours(painter: Painter, sampler: Sampler, steps: int) -> tuple[RgbImage, list[int]]:
    from engine.generation.pipeline import Listeners

    request = GenerationRequest(
        prompt=PROMPT, negative_prompt=NEGATIVE, width=WIDTH, height=HEIGHT, steps=steps, guidance_scale=GUIDANCE,
        sampler=sampler, seed=SEED, backend=Backend.EAGER,
    )  # fmt: skip
    heard: list[int] = []
    listeners = Listeners(lambda report, plan: heard.append(report.step), lambda: None, lambda what, fraction: None)
    image, _ = await painter.make_picture(request, EngineSettings, listeners, CancellationToken.none)
    return image, heard


def theirs(pipeline: Any, scheduler: Any, steps: int) -> Any:
    import torch

    pipeline.scheduler = scheduler
    made = pipeline(
        PROMPT, negative_prompt=NEGATIVE, width=WIDTH, height=HEIGHT, num_inference_steps=steps,
        guidance_scale=GUIDANCE, generator=torch.Generator("cpu").manual_seed(SEED), output_type="pil",
    )  # fmt: skip
    return made.images[0]


def largest_difference(image: RgbImage, reference: Any) -> int:
    import numpy as np

    assert (image.width, image.height) == reference.size
    mine = np.frombuffer(image.pixels, np.uint8).astype(int).reshape(image.height, image.width, 3)
    return int(np.abs(mine - np.asarray(reference).astype(int)).max())


@pytest.mark.parametrize(
    ("sampler", "scheduler"),
    [
        (Sampler.DDIM, "DDIMScheduler"),
        (Sampler.EULER, "EulerDiscreteScheduler"),
        (Sampler.DPMPP_2M, "DPMSolverMultistepScheduler"),
    ],
)
async def test_a_picture_is_the_one_that_diffusers_makes(
    painter: Painter, pipeline: Any, sampler: Sampler, scheduler: str
) -> None:
    import diffusers

    config = diffusers.DDIMScheduler.load_config(STARTER_MODEL / "scheduler")
    reference = theirs(pipeline, getattr(diffusers, scheduler).from_config(config), 6)
    image, _ = await ours(painter, sampler, 6)
    assert largest_difference(image, reference) <= 1


@pytest.mark.parametrize("sampler", Sampler)
async def test_the_loop_runs_every_scheduler_as_the_pipeline_does(
    painter: Painter, pipeline: Any, sampler: Sampler
) -> None:
    config = painter.model.description.scheduler_config
    image, heard = await ours(painter, sampler, 4)
    assert heard == [1, 2, 3, 4]
    # the pipeline counts evaluations where a scheduler does: it gets what makes the same four steps
    assert largest_difference(image, theirs(pipeline, make_scheduler(sampler, config, SEED), 4)) <= 1


def test_karras_and_the_seed_of_the_brownian_tree_reach_the_scheduler() -> None:
    config = {"_class_name": "DDIMScheduler", "prediction_type": "epsilon", "num_train_timesteps": 1000}
    assert make_scheduler(Sampler.DPMPP_2M_KARRAS, config, 0).config["use_karras_sigmas"]
    assert not make_scheduler(Sampler.DPMPP_2M, config, 0).config["use_karras_sigmas"]
    assert make_scheduler(Sampler.DPMPP_SDE, config, 11).config["noise_sampler_seed"] == 11


@pytest.mark.parametrize("sampler", Sampler)
def test_what_the_model_was_trained_with_reaches_every_scheduler(sampler: Sampler) -> None:
    config = {
        "_class_name": "DDIMScheduler",
        "beta_schedule": "scaled_linear",
        "beta_start": 0.001,
        "prediction_type": "v_prediction",
    }
    scheduler = make_scheduler(sampler, config, 0)
    got = {key: scheduler.config[key] for key in ("beta_schedule", "beta_start", "prediction_type")}
    assert got == {"beta_schedule": "scaled_linear", "beta_start": 0.001, "prediction_type": "v_prediction"}


@pytest.mark.parametrize("sampler", [Sampler.LCM, Sampler.DDIM, Sampler.EULER_A, Sampler.PNDM, Sampler.DPMPP_SDE])
def test_a_sampler_without_a_form_for_flow_is_refused(sampler: Sampler) -> None:
    with pytest.raises(RequestRefused, match="no form for flow-matching"):
        make_scheduler(sampler, {"_class_name": "FlowMatchEulerDiscreteScheduler"}, 0)


@pytest.mark.parametrize(
    ("config", "prediction"),
    [
        ({}, "epsilon"),
        ({"prediction_type": "v_prediction"}, "v_prediction"),
        ({"_class_name": "FlowMatchHeunDiscreteScheduler"}, "flow_prediction"),
        ({"_class_name": "UniPCMultistepScheduler", "use_flow_sigmas": True}, "flow_prediction"),
        ({"prediction_type": "flow_prediction"}, "flow_prediction"),
    ],
)
def test_the_prediction_is_read_from_the_scheduler_s_config(config: dict[str, Any], prediction: str) -> None:
    assert prediction_type(config) == prediction


def test_second_order_samplers_evaluate_twice_a_step() -> None:
    assert {sampler for sampler in Sampler if evaluations_per_step(sampler) == 2} == {Sampler.HEUN, Sampler.DPMPP_SDE}
