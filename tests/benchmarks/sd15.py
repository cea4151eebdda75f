"""A model folder with the architecture and the size of Stable Diffusion 1.5 and random weights, for measuring.

`python -m tests.benchmarks.sd15 FOLDER` writes it (2.1 GB of f16 safetensors); a folder that is whole is left as it is.
The weights are drawn as torch's own initialisation draws them, so activations keep ordinary sizes; what comes out
is noise.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

SEED = 0
CONTEXT = 77
VOCABULARY = 49408
END = VOCABULARY - 1

UNET = {
    "act_fn": "silu",
    "attention_head_dim": 8,
    "block_out_channels": [320, 640, 1280, 1280],
    "cross_attention_dim": 768,
    "down_block_types": ["CrossAttnDownBlock2D"] * 3 + ["DownBlock2D"],
    "in_channels": 4,
    "layers_per_block": 2,
    "norm_num_groups": 32,
    "out_channels": 4,
    "sample_size": 64,
    "up_block_types": ["UpBlock2D"] + ["CrossAttnUpBlock2D"] * 3,
}
VAE = {
    "act_fn": "silu",
    "block_out_channels": [128, 256, 512, 512],
    "down_block_types": ["DownEncoderBlock2D"] * 4,
    "in_channels": 3,
    "latent_channels": 4,
    "layers_per_block": 2,
    "norm_num_groups": 32,
    "out_channels": 3,
    "sample_size": 512,
    "scaling_factor": 0.18215,
    "up_block_types": ["UpDecoderBlock2D"] * 4,
}
TEXT_ENCODER = {
    "architectures": ["CLIPTextModel"],
    "bos_token_id": END - 1,
    "eos_token_id": END,
    "hidden_act": "quick_gelu",
    "hidden_size": 768,
    "intermediate_size": 3072,
    "max_position_embeddings": CONTEXT,
    "model_type": "clip_text_model",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": END,
    "projection_dim": 768,
    "vocab_size": VOCABULARY,
}
SCHEDULER = {
    "_class_name": "PNDMScheduler",
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "num_train_timesteps": 1000,
    "prediction_type": "epsilon",
    "set_alpha_to_one": False,
    "skip_prk_steps": True,
    "steps_offset": 1,
}
INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "scheduler": ["diffusers", "PNDMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


def write_model(folder: Path) -> Path:
    """Write the model into `folder`, in diffusers' layout, and return the folder. One that is whole is kept."""
    index = folder / "model_index.json"
    if index.exists():
        return folder
    write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    write_tokenizer(folder / "tokenizer")
    write_weights(folder / "text_encoder", "model", TEXT_ENCODER, _text_encoder)
    write_weights(folder / "vae", "diffusion_pytorch_model", {"_class_name": "AutoencoderKL"} | VAE, _vae)
    write_weights(folder / "unet", "diffusion_pytorch_model", {"_class_name": "UNet2DConditionModel"} | UNET, _unet)
    write_json(index, INDEX)  # last, since it says that the folder is whole
    return folder


def _unet() -> Any:
    from diffusers import UNet2DConditionModel

    return UNet2DConditionModel.from_config(UNET)


def _vae() -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL.from_config(VAE)


def _text_encoder() -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel

    return CLIPTextModel(CLIPTextConfig(**TEXT_ENCODER))


def write_weights(folder: Path, stem: str, config: dict[str, Any], build: Callable[[], Any]) -> None:
    """Draw the weights in f16, tensor by tensor: the module itself is never given memory."""
    import torch
    from accelerate import init_empty_weights
    from safetensors.torch import save_file

    with init_empty_weights(include_buffers=False):
        module = build()
    generator = torch.Generator().manual_seed(SEED)
    tensors = {}
    for name, parameter in module.named_parameters():
        tensor = torch.empty(parameter.shape, dtype=torch.float16)
        owner = module.get_submodule(name.rpartition(".")[0])
        if parameter.dim() == 1:  # a bias, or the scale of a norm
            is_scale = name.endswith("weight")
            tensor.fill_(1.0 if is_scale else 0.0)
        elif isinstance(owner, torch.nn.Embedding):
            tensor.normal_(0, 0.02, generator=generator)
        else:
            bound = 1 / math.sqrt(parameter[0].numel())
            tensor.uniform_(-bound, bound, generator=generator)
        tensors[name] = tensor
    write_json(folder / "config.json", config)
    save_file(tensors, folder / f"{stem}.safetensors", metadata={"format": "pt"})


def write_tokenizer(folder: Path) -> None:
    """CLIP's tokenizer with a vocabulary of single bytes: every text can be written, each character is a token."""
    from transformers import CLIPTokenizer
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    characters = list(bytes_to_unicode().values())
    vocabulary = {token: k for k, token in enumerate(characters + [f"{c}</w>" for c in characters])}
    vocabulary |= {"<|startoftext|>": END - 1, "<|endoftext|>": END}
    CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=CONTEXT).save_pretrained(folder)


def write_json(path: Path, content: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a model the size of Stable Diffusion 1.5 with random weights.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to; kept if it is whole already")
    print(write_model(parser.parse_args().folder))
    sys.exit(0)
