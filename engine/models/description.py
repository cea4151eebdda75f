"""What is known of a model folder from its JSON files and safetensors headers alone, without torch.

The layout is diffusers' for Stable Diffusion: model_index.json, text_encoder, tokenizer, unet, vae, scheduler; for SDXL
also text_encoder_2 and tokenizer_2.
A `safelight.json` beside model_index.json may hold the model's name, the settings it looks best with and the linear
factors of its latent preview.
"""

from __future__ import annotations

import json
import stat
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.errors import ModelRefused, RequestRefused
from engine.generation.samplers import PREDICTIONS, prediction_type, why_unusable
from engine.models.family import Family, family_of, has_part, why_apart
from engine.models.latent_rgb import LatentRgb
from engine.request import GenerationRequest, Sampler
from resources import STARTER_MODEL

MAX_HEADER = 100_000_000  # bytes; the limit of the safetensors library itself
MAX_CONFIG = 10_000_000


class Beside(BaseModel):
    """The contents of safelight.json; every field may be left out."""

    model_config = ConfigDict(frozen=True)

    name: str | None = None
    examples: tuple[str, ...] = ()
    width: int | None = None
    height: int | None = None
    steps: int | None = None
    guidance_scale: float | None = None
    sampler: Sampler | None = None
    max_side: int | None = None
    latent_rgb: LatentRgb | None = None


class ModelDescription(BaseModel):
    """One model as the form and the command line see it. Sizes are pixels.

    `defaults` is a request with the settings that the model looks best with. Width and height must be multiples
    of `size_multiple` (the VAE's factor times the UNet's) and at most `max_side`. `text_length` is the
    number of tokens in one chunk of the prompt, its start and end tokens included. `family` is "starter", "sd1" or
    "sdxl". Where `zeros_for_empty_prompt`, an empty negative prompt means embeddings of zeros, not those of "".
    `needs_vae_in_f32` says that the VAE's values outgrow f16.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    folder: Path
    family: str
    prediction: str
    size_multiple: int
    max_side: int = 4096
    text_length: Annotated[int, Field(ge=3)]
    defaults: GenerationRequest
    examples: tuple[str, ...] = ()
    latent_rgb: LatentRgb | None = None
    zeros_for_empty_prompt: bool = False
    needs_vae_in_f32: bool = False
    scheduler_config: dict[str, Any] = Field(repr=False)

    def why_unusable(self, sampler: Sampler) -> str | None:
        return why_unusable(sampler, self.prediction)

    def nearest_side(self, side: int) -> int:
        """The nearest side that the model can make, ties upwards."""
        multiple = self.size_multiple
        rounded = (side + multiple // 2) // multiple * multiple
        return min(max(rounded, multiple), self.max_side // multiple * multiple)

    def check(self, request: GenerationRequest) -> None:
        """Raises `RequestRefused` with a sentence naming the nearest that this model can do."""
        nearest = self.nearest_side(request.width), self.nearest_side(request.height)
        if nearest != (request.width, request.height):
            raise RequestRefused(
                f"{self.name} can't make {request.width}×{request.height}: sides must be multiples of "
                f"{self.size_multiple} up to {self.max_side}. The nearest size is {nearest[0]}×{nearest[1]}."
            )
        if (reason := self.why_unusable(request.sampler)) is not None:
            raise RequestRefused(reason)


def find_model(name: str) -> Path:
    """The folder of a model: a bundled model's name, or a path. Raises `ModelRefused` where there is none."""
    if name == "starter":
        return STARTER_MODEL
    hint = "Name the bundled model (starter) or a diffusers model folder."
    try:
        folder = Path(name).expanduser()
        if folder.is_dir():
            return folder
        what = "is a file; Safelight loads diffusers folders" if folder.is_file() else "doesn't exist"
    except (OSError, RuntimeError) as error:  # RuntimeError: the home folder of a user who isn't there
        raise ModelRefused(f"{name[:100]} can't be opened ({error}). {hint}") from error
    raise ModelRefused(f"{folder} {what}. {hint}")


def describe(name: str) -> ModelDescription:
    """Describe a model by name or path, and refuse what isn't one.

    Raises `ModelRefused`, naming the file and the reason, for a folder that isn't a Stable Diffusion model in
    diffusers' layout, for broken JSON, for weights as pickles, and for truncated or lying safetensors headers.
    """
    folder = find_model(name)
    index = read_config(folder / "model_index.json")
    family = family_of(index)
    missing = [part for part in (*family.parts, "scheduler", *family.tokenizers) if not has_part(index, part)]
    if missing:
        raise ModelRefused(f"{folder} isn't a {family.label} model folder: it has no {', '.join(missing)}.")
    for part in family.parts:
        for weights in weight_files(folder, part):
            check_header(weights)
    unet, vae = (read_config(folder / part / "config.json") for part in ("unet", "vae"))
    texts = [read_config(folder / part / "config.json") for part in family.text_encoders]
    scheduler = read_config(folder / "scheduler" / "scheduler_config.json")
    prediction = prediction_type(scheduler)
    if prediction not in PREDICTIONS:
        raise ModelRefused(f"{folder} predicts '{prediction}', which no sampler here understands.")
    if str(scheduler.get("_class_name", "")).startswith("EDM"):
        raise ModelRefused(f"{folder} is sampled by an {scheduler['_class_name']}, and no sampler here works that way.")
    for config, cls, part in ((unet, "UNet2DConditionModel", "unet"), (vae, "AutoencoderKL", "vae")):
        if config.get("_class_name") != cls:
            raise ModelRefused(f"{folder / part} holds a {config.get('_class_name')}; this version runs {cls}.")
    tokenizers = [read_config(folder / part / "tokenizer_config.json") for part in family.tokenizers]
    zeros = family.text_encoders[1:] != () and bool(index.get("force_zeros_for_empty_prompt", True))
    beside = _beside(folder)
    try:
        return _assemble(name, folder, family, beside, unet, vae, texts, tokenizers, zeros, scheduler, prediction)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelRefused(f"A config of {folder} lacks or garbles what is needed to run it ({error}).") from error


def _assemble(
    name: str,
    folder: Path,
    family: Family,
    beside: Beside,
    unet: Mapping[str, Any],
    vae: Mapping[str, Any],
    texts: Sequence[Mapping[str, Any]],
    tokenizers: Sequence[Mapping[str, Any]],
    zeros_for_empty_prompt: bool,
    scheduler: dict[str, Any],
    prediction: str,
) -> ModelDescription:
    channels = int(vae["latent_channels"])
    if not unet["in_channels"] == unet["out_channels"] == channels:
        raise ValueError(
            f"a UNet of {unet['in_channels']} channels in and {unet['out_channels']} out doesn't make latents of "
            f"{channels}; it may be for inpainting or upscaling"
        )
    if (reason := why_apart(family, unet, texts)) is not None:
        raise ValueError(reason)
    of_family = family.latent_rgb if channels == len(family.latent_rgb.factors) else None
    latent_rgb = beside.latent_rgb or of_family
    if latent_rgb is not None and len(latent_rgb.factors) != channels:
        raise ValueError(f"latent_rgb has {len(latent_rgb.factors)} rows for latents of {channels} channels")
    vae_factor = 2 ** (len(vae["block_out_channels"]) - 1)
    side = int(unet["sample_size"]) * vae_factor
    known = {k: v for k, v in beside.model_dump().items() if k in GenerationRequest.model_fields and v is not None}
    guidance, sampler = family.guidance_scale, family.sampler
    base = {"width": side, "height": side, "guidance_scale": guidance, "sampler": sampler, "model": name}
    if prediction == "flow_prediction":
        base["sampler"] = Sampler.EULER
    lengths = [tokenizer.get("model_max_length", 77) for tokenizer in tokenizers]
    longest = min(int(length) for length in lengths + [text.get("max_position_embeddings", 77) for text in texts])
    return ModelDescription(
        name=beside.name or folder.name,
        folder=folder,
        family="starter" if folder == STARTER_MODEL else family.name,
        prediction=prediction,
        size_multiple=vae_factor * 2 ** (len(unet["block_out_channels"]) - 1),
        max_side=beside.max_side or 2048,
        text_length=longest,
        defaults=GenerationRequest(**(base | known)),
        examples=beside.examples,
        latent_rgb=latent_rgb,
        zeros_for_empty_prompt=zeros_for_empty_prompt,
        needs_vae_in_f32=len(texts) > 1 and bool(vae.get("force_upcast", True)),
        scheduler_config=scheduler,
    )


def _beside(folder: Path) -> Beside:
    path = folder / "safelight.json"
    if not path.exists():
        return Beside()
    try:
        return Beside.model_validate(read_config(path))
    except ValidationError as error:
        first = error.errors()[0]
        raise ModelRefused(f"{path} is not understood: {first['loc']}: {first['msg']}.") from error


def read_config(path: Path) -> dict[str, Any]:
    """A JSON object from a model folder. Raises `ModelRefused` where it is missing, broken or absurdly large."""
    try:
        if _size(path) > MAX_CONFIG:
            raise ModelRefused(f"{path} is too large for a config file.")
        loaded = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelRefused(f"{path.parent} isn't a diffusers model folder: {path.name} is missing.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ModelRefused(f"{path} can't be read as JSON ({error}).") from error
    if not isinstance(loaded, dict):
        raise ModelRefused(f"{path} should hold a JSON object.")
    return loaded


def _size(path: Path) -> int:
    """The size of a regular file; reading a pipe or a device would never end. Raises `ModelRefused`, `OSError`."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ModelRefused(f"{path} isn't a file.")
    return status.st_size


def weight_files(folder: Path, component: str) -> list[Path]:
    """The safetensors files of a component, shards in order. Pickles are refused, never opened.

    A variant ("….fp16.safetensors", "….non_ema.safetensors") is taken only where there is nothing else.
    """
    place = folder / component
    files = sorted(place.glob("*.safetensors"))
    if files:
        return [file for file in files if "." not in file.stem] or files
    pickles = sorted([*place.glob("*.bin"), *place.glob("*.ckpt"), *place.glob("*.pt"), *place.glob("*.pth")])
    if pickles:
        raise ModelRefused(
            f"{pickles[0]} is a pickle, which could run code when opened. Get the model as .safetensors files."
        )
    raise ModelRefused(f"{place} holds no weights: a .safetensors file is missing.")


def check_header(path: Path) -> None:
    """Check that a safetensors file is whole: header within bounds, and the data exactly as long as it says.

    Format: https://github.com/huggingface/safetensors#format. Raises `ModelRefused`.
    """
    try:
        size = _size(path)
        with path.open("rb") as file:
            start = file.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER, size - 8):
                raise ModelRefused(f"{path} isn't a safetensors file, or it is truncated: its header can't be right.")
            header = json.loads(file.read(length))
        tensors = [entry for key, entry in header.items() if key != "__metadata__"]
        end = max((int(entry["data_offsets"][1]) for entry in tensors), default=0)
    except OSError as error:
        raise ModelRefused(f"{path} can't be read ({error.strerror}).") from error
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise ModelRefused(f"{path} isn't a safetensors file: its header is garbled.") from error
    if 8 + length + end != size:
        raise ModelRefused(
            f"{path} is truncated or padded: its header promises {8 + length + end:,} bytes, it has {size:,}. "
            "Download or copy it again."
        )
