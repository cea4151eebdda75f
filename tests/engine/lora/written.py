"""LoRAs with random pairs, written as the programs that people train with write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

# layer -> (down, up, alpha)
Pairs = dict[str, tuple[Any, Any, float]]


def random_pairs(module: Any, layers: Iterable[str], rank: int, seed: int = 0, alpha: float | None = None) -> Pairs:
    """Pairs that change a module's answers visibly. Alpha differs from layer to layer where none is given."""
    import torch

    from engine.lora.layout import shapes_for

    draw = torch.Generator().manual_seed(seed)
    pairs: Pairs = {}
    for number, layer in enumerate(layers):
        down, up = shapes_for(module.get_submodule(layer), rank)
        chosen = float(1 + number % 4) if alpha is None else alpha
        pairs[layer] = torch.randn(down, generator=draw) * 0.2, torch.randn(up, generator=draw) * 0.2, chosen
    return pairs


def save(path: Path, tensors: Mapping[str, Any], metadata: dict[str, str] | None = None) -> Path:
    from safetensors.torch import save_file

    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, path, metadata)
    return path


def _up_as_stored(down: Any, up: Any) -> Any:
    return up[:, :, None, None] if down.dim() == 4 else up


def kohya(unet: Pairs, text: Pairs | None = None, text_prefix: str = "lora_te_text_model_") -> dict[str, Any]:
    import torch

    tensors: dict[str, Any] = {}
    for prefix, pairs in (("lora_unet_", unet), (text_prefix, text or {})):
        for layer, (down, up, alpha) in pairs.items():
            name = prefix + layer.replace(".", "_")
            tensors[f"{name}.lora_down.weight"] = down
            tensors[f"{name}.lora_up.weight"] = _up_as_stored(down, up)
            tensors[f"{name}.alpha"] = torch.tensor(alpha)
    return tensors


def locon_tucker(unet: Pairs) -> tuple[dict[str, Any], Pairs]:
    """LyCORIS' LoCon with `lora_mid`, for layers with a kernel, and the pairs that it amounts to."""
    import torch

    draw = torch.Generator().manual_seed(9)
    tensors, amounts = kohya(unet), dict(unet)
    for layer, (down, up, alpha) in unet.items():
        if down.dim() == 4 and down.shape[2] > 1:
            mid = torch.randn(down.shape[0], down.shape[0], *down.shape[2:], generator=draw) * 0.2
            thin = torch.randn(down.shape[0], down.shape[1], 1, 1, generator=draw)
            name = "lora_unet_" + layer.replace(".", "_")
            tensors[f"{name}.lora_mid.weight"] = mid
            tensors[f"{name}.lora_down.weight"] = thin
            amounts[layer] = torch.einsum("irhw,rc->ichw", mid, thin[:, :, 0, 0]), up, alpha
    return tensors, amounts


def diffusers(unet: Pairs, text: Pairs | None = None) -> dict[str, Any]:
    """The layout of diffusers since 2023, before PEFT; it has no alpha."""
    tensors: dict[str, Any] = {}
    for layer, (down, up, _) in unet.items():
        tensors[f"unet.{layer}.lora.down.weight"] = down
        tensors[f"unet.{layer}.lora.up.weight"] = _up_as_stored(down, up)
    for layer, (down, up, _) in (text or {}).items():
        tensors[f"text_encoder.text_model.{layer}.lora_linear_layer.down.weight"] = down
        tensors[f"text_encoder.text_model.{layer}.lora_linear_layer.up.weight"] = up
    return tensors


def diffusers_old(unet: Pairs, prefix: str = "") -> dict[str, Any]:
    """The first layout of diffusers, attention processors only; `prefix` is "unet." in later ones."""
    tensors: dict[str, Any] = {}
    for layer, (down, up, _) in unet.items():
        block, _, projection = layer.removesuffix(".0").rpartition(".")
        tensors[f"{prefix}{block}.processor.{projection}_lora.down.weight"] = down
        tensors[f"{prefix}{block}.processor.{projection}_lora.up.weight"] = up
    return tensors


def peft(unet: Pairs, text: Pairs | None = None) -> dict[str, Any]:
    """What diffusers writes today; alphas are in `peft_metadata`."""
    tensors: dict[str, Any] = {}
    for prefix, pairs in (("unet.", unet), ("text_encoder.text_model.", text or {})):
        for layer, (down, up, _) in pairs.items():
            tensors[f"{prefix}{layer}.lora_A.weight"] = down
            tensors[f"{prefix}{layer}.lora_B.weight"] = _up_as_stored(down, up)
    return tensors


def peft_metadata(unet: Pairs, text: Pairs | None = None) -> dict[str, str]:
    config: dict[str, Any] = {}
    for part, prefix, pairs in (("unet", "", unet), ("text_encoder", "text_model.", text or {})):
        if pairs:
            config[f"{part}.r"] = config[f"{part}.lora_alpha"] = 1
            config[f"{part}.alpha_pattern"] = {prefix + layer: alpha for layer, (_, _, alpha) in pairs.items()}
    return {"format": "pt", "lora_adapter_metadata": json.dumps(config)}
