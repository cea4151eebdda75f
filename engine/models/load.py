"""Loading a model's modules: from local safetensors files only, tensor by tensor, so that it can stop at any of them.

Weights are read through the file's memory map, never unpickled; nothing reaches for a hub. The modules are built
without memory for their weights and get each tensor as it is read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate import init_empty_weights
from safetensors import SafetensorError, safe_open
from torch.nn.modules.module import register_module_parameter_registration_hook

from engine.cancellation import CancellationToken
from engine.errors import ModelRefused, OperationCancelled
from engine.models.description import check_header, read_config, weight_files
from engine.models.narrow import keep_narrow, stays_narrow

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Progress = Callable[[float], None]
_OLD_ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}
_TEXT_ENCODERS: dict[str, dict[str, dict[str, Any]]] = {
    "text_encoder": {"BertModel": {"add_pooling_layer": False}, "CLIPTextModel": {}},
    "text_encoder_2": {"CLIPTextModelWithProjection": {}},
}


def load_module(
    folder: Path,
    part: str,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    progress: Progress = lambda fraction: None,
    token: CancellationToken = CancellationToken.none,
    narrow: bool = False,
) -> torch.nn.Module:
    """Load one part ("text_encoder", "text_encoder_2", "unet" or "vae") of a model in diffusers' layout, in eval mode,
    without gradients.

    `narrow` keeps the large weights in f16 and widens them while the module runs, for f32 on the CPU. `progress` hears
    fractions in 0..1. Raises `ModelRefused` for missing or misshapen tensors and damaged files,
    and `OperationCancelled` between two tensors, also while the module is built.
    """
    token.raise_if_cancelled()
    config = read_config(folder / part / "config.json")
    with init_empty_weights(include_buffers=False), _stopping_at_parameters(token):
        module = _build(folder, part, config)
    if narrow:
        keep_narrow(module)
    fill(module, folder, part, dtype, device, progress, token.raise_if_cancelled)
    return module.to(device).eval().requires_grad_(False)


def fill(
    module: torch.nn.Module,
    folder: Path,
    part: str,
    dtype: torch.dtype,
    device: str,
    progress: Progress,
    checkpoint: Callable[[], None],
) -> None:
    """Give `module` the weights of a part. `checkpoint` is called before each tensor and may raise.

    Raises `ModelRefused` as `load_module` does.
    """
    expected = dict(module.named_parameters()) | dict(module.named_buffers())
    missing = {name for name, _ in module.named_parameters()}
    files = weight_files(folder, part)
    for number, file in enumerate(files):
        for name, tensor, fraction in _tensors(file, checkpoint):
            progress((number + fraction) / len(files))
            target = _current_name(name, expected)
            if target is None:
                continue
            if tensor.shape != expected[target].shape:
                raise ModelRefused(
                    f"{file}: {name} has the shape {tuple(tensor.shape)}, the config asks for "
                    f"{tuple(expected[target].shape)}. The weights and the config don't belong together."
                )
            _assign(module, target, tensor, device, dtype)
            missing.discard(target)
    if missing:
        raise ModelRefused(f"{folder / part} lacks {len(missing)} tensors, {min(missing)} for one: it isn't complete.")


@contextmanager
def _stopping_at_parameters(token: CancellationToken) -> Iterator[None]:
    """Within: building a module on this thread raises `OperationCancelled` at its next parameter once cancelled."""
    building = threading.get_ident()

    def look(*registered: object) -> None:
        del registered
        if threading.get_ident() == building:
            token.raise_if_cancelled()

    hook = register_module_parameter_registration_hook(look)
    try:
        yield
    finally:
        hook.remove()


def _placed(tensor: torch.Tensor, device: str, dtype: torch.dtype) -> torch.Tensor:
    """The weight as the modules use it: convolutions' channels last, which oneDNN and cuDNN run faster."""
    tensor = tensor.to(device=device, dtype=dtype if tensor.is_floating_point() else None)
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


def load_tokenizer(
    folder: Path, token: CancellationToken = CancellationToken.none, part: str = "tokenizer"
) -> PreTrainedTokenizerBase:
    """A tokenizer of a model folder. Raises `ModelRefused` where its files are missing or broken, and
    `OperationCancelled` half-way where there is one whole `tokenizer.json`.
    """
    from tokenizers import Tokenizer
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    place = folder / part
    try:
        options = _tokenizer_options(place)
        if options is None:
            return AutoTokenizer.from_pretrained(place, local_files_only=True)
        # The same tokenizer in two shorter parts: together they take longer than a cancel may.
        whole = Tokenizer.from_file(str(place / "tokenizer.json"))
        token.raise_if_cancelled()
        return PreTrainedTokenizerFast(tokenizer_object=whole, **options)
    except OperationCancelled:
        raise
    except Exception as error:  # the library raises whatever its parsers raise
        raise ModelRefused(f"The tokenizer in {place} can't be read ({error}).") from error


def _tokenizer_options(place: Path) -> dict[str, Any] | None:
    """Special tokens and length of a tokenizer that `tokenizer.json` holds whole; None where it takes more to know."""
    config = place / "tokenizer_config.json"
    if not config.is_file() or not (place / "tokenizer.json").is_file():
        return None
    found = read_config(config)
    options = {name: found[name] for name in found if name.endswith("_token") and isinstance(found[name], str)}
    if found.get("tokenizer_class") != "BertTokenizer" or not {"cls_token", "sep_token"} <= options.keys():
        return None  # CLIP's class, for one, puts its own decoder in place of the file's
    if "model_max_length" in found:
        options["model_max_length"] = found["model_max_length"]
    return options


def _build(folder: Path, part: str, config: dict[str, Any]) -> torch.nn.Module:
    import diffusers
    import transformers

    try:
        if (known := _TEXT_ENCODERS.get(part)) is not None:
            name = next(iter(config.get("architectures") or []), None)
            if name not in known:
                raise ModelRefused(f"{folder / part} holds a {name}; text encoders known here: {', '.join(known)}.")
            options = transformers.AutoConfig.for_model(**config)
            return getattr(transformers, name)(options, **known[name])
        cls = diffusers.UNet2DConditionModel if part == "unet" else diffusers.AutoencoderKL
        return cls.from_config(config)
    except (ModelRefused, OperationCancelled):
        raise
    except Exception as error:  # the libraries raise whatever a value that they never expected leads to
        raise ModelRefused(f"The config in {folder / part} describes no working module ({error}).") from error


def _tensors(file: Path, checkpoint: Callable[[], None]) -> Iterator[tuple[str, torch.Tensor, float]]:
    check_header(file)
    try:
        with safe_open(file, framework="pt", device="cpu") as opened:
            names = list(opened.keys())
            for k, name in enumerate(names):
                checkpoint()
                yield name, opened.get_tensor(name), (k + 1) / len(names)
    except SafetensorError as error:
        raise ModelRefused(f"{file} can't be read: {error}.") from error


def _current_name(name: str, expected: dict[str, torch.Tensor]) -> str | None:
    """The module's name for a stored tensor: as it is, or from older layouts; None for what isn't used."""
    if name in expected:
        return name
    parts = name.split(".")
    renamed = ".".join(_OLD_ATTENTION.get(part, part) for part in parts)
    for candidate in (renamed, name.removeprefix("text_model."), f"text_model.{name}"):
        if candidate in expected:
            return candidate
    return None


def _assign(module: torch.nn.Module, name: str, tensor: torch.Tensor, device: str, dtype: torch.dtype) -> None:
    owner, _, leaf = name.rpartition(".")
    part = module.get_submodule(owner)
    tensor = tensor.half() if stays_narrow(part, leaf, tensor) else _placed(tensor, device, dtype)
    if leaf in part._parameters:
        part._parameters[leaf] = torch.nn.Parameter(tensor, requires_grad=False)
    else:
        part._buffers[leaf] = tensor
