"""What a picture is made from: plain, validated, immutable data that survives JSON and pickling."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

MAX_SEED = 2**32 - 1
MAX_SIDE = 4096
MAX_PROMPT = 20_000
MAX_THREADS = 512
MAX_LORAS = 32
MAX_PATH = 4096


class Sampler(StrEnum):
    """Samplers by the names people know them by; `engine.generation.samplers` turns them into schedulers."""

    EULER = "Euler"
    EULER_A = "Euler a"
    DDIM = "DDIM"
    DPMPP_2M = "DPM++ 2M"
    DPMPP_2M_KARRAS = "DPM++ 2M Karras"
    DPMPP_SDE = "DPM++ SDE"
    UNIPC = "UniPC"
    HEUN = "Heun"
    LCM = "LCM"
    PNDM = "PNDM"


class Backend(StrEnum):
    """Who runs the modules. `AUTO` takes a compiled plan where one is ready and the eager modules otherwise."""

    AUTO = "auto"
    EAGER = "eager"
    OPENVINO = "openvino"
    INDUCTOR = "inductor"


class Switch(StrEnum):
    """A setting that can be left to the program."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class Weights(StrEnum):
    """In which form a model's large weights stay in memory on the CPU; everything is computed in f32.

    `FULL` is f32, the fastest. `HALF` is f16, as most files hold them: pictures differ by rounding alone. `INT8` is for
    OpenVINO plans, with a scale per output channel: pictures differ a little; what no plan answers runs in f16. The VAE
    is small and always full.
    """

    FULL = "full"
    HALF = "half"
    INT8 = "int8"


class LoraUse(BaseModel):
    """A LoRA (Hu et al. 2021) in a picture: its .safetensors file, and how strongly it changes the model.

    At 1 it does what it was trained for, at 0 nothing, below 0 the contrary.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: Annotated[str, Field(min_length=1, max_length=MAX_PATH)]
    strength: Annotated[float, Field(ge=-10, le=10, allow_inf_nan=False)] = 1.0


class GenerationRequest(BaseModel):
    """One picture.

    Sizes are pixels; what a model makes of them (multiples, largest size) is checked against the model by
    `engine.models.description.ModelDescription.check`. `seed` seeds one generator on the CPU, the same on every
    device. `guidance_scale` is that of classifier-free guidance (Ho & Salimans 2022); 1 runs without guidance.
    `model` is a model's name ("starter") or the path of a diffusers folder; `loras` change it, all at once.

    Raises `pydantic.ValidationError` for values out of range.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    prompt: Annotated[str, Field(max_length=MAX_PROMPT)] = ""
    negative_prompt: Annotated[str, Field(max_length=MAX_PROMPT)] = ""
    width: Annotated[int, Field(ge=32, le=MAX_SIDE)] = 128
    height: Annotated[int, Field(ge=32, le=MAX_SIDE)] = 128
    steps: Annotated[int, Field(ge=1, le=150)] = 30
    guidance_scale: Annotated[float, Field(ge=1, le=30, allow_inf_nan=False)] = 4.0
    sampler: Sampler = Sampler.DDIM
    seed: Annotated[int, Field(ge=0, le=MAX_SEED)] = 0
    model: str = "starter"
    backend: Backend = Backend.AUTO
    loras: Annotated[tuple[LoraUse, ...], Field(max_length=MAX_LORAS)] = ()


class EngineSettings(BaseModel):
    """How the engine works, whatever the picture. Replaced as a whole by `Engine.configure`.

    A changed VAE switch takes effect at the next decode, everything else at the next picture.
    `output_folder` None keeps pictures in memory only. `preview_interval` is the least time between two previews,
    in seconds. `plan_folder` None keeps compiled plans for this process only. `threads` is how many the operators
    may use, 0 as many as the libraries choose. Changed `weights` load the model again.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    output_folder: Path | None = None
    plan_folder: Path | None = None
    previews: bool = True
    preview_interval: Annotated[float, Field(ge=0, le=60)] = 0.05
    vae_tiling: Switch = Switch.AUTO
    vae_slicing: Switch = Switch.AUTO
    build_plans: bool = True
    threads: Annotated[int, Field(ge=0, le=MAX_THREADS)] = 0
    weights: Weights = Weights.FULL
