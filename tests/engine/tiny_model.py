"""A model folder in diffusers' Stable Diffusion layout, with random weights and small enough to load in a blink."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

# one power of two between the UNet's two blocks and between the VAE's two: sides are multiples of four
SIZE_MULTIPLE = 4
CONTEXT = 77
WIDTH = 32
LETTERS = "abcdefghijklmnopqrstuvwxyz,."

UNET = {
    "attention_head_dim": 8,
    "block_out_channels": [32, 32],
    "cross_attention_dim": WIDTH,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "in_channels": 4,
    "layers_per_block": 1,
    "norm_num_groups": 8,
    "out_channels": 4,
    "sample_size": 32,
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}
VAE = {
    "block_out_channels": [8, 16],
    "down_block_types": ["DownEncoderBlock2D"] * 2,
    "latent_channels": 4,
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "sample_size": 64,
    "scaling_factor": 0.5,
    "up_block_types": ["UpDecoderBlock2D"] * 2,
}
TEXT_ENCODER = {
    "bos_token_id": 0,
    "eos_token_id": 1,
    "hidden_size": WIDTH,
    "intermediate_size": 64,
    "max_position_embeddings": CONTEXT,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "pad_token_id": 1,
    "vocab_size": 2 + 2 * len(LETTERS),
}
SCHEDULER = {
    "_class_name": "DDIMScheduler",
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "clip_sample": False,
    "num_train_timesteps": 1000,
    "prediction_type": "epsilon",
    "set_alpha_to_one": False,
    "steps_offset": 1,
}
INDEX = {
    "_class_name": "StableDiffusionPipeline",
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


def write(folder: Path) -> Path:
    """Write the model into `folder` as diffusers and transformers themselves write one. Seeded: always the same."""
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        UNet2DConditionModel.from_config(UNET).save_pretrained(folder / "unet")
        AutoencoderKL.from_config(VAE).save_pretrained(folder / "vae")
        CLIPTextModel(CLIPTextConfig(**TEXT_ENCODER)).save_pretrained(folder / "text_encoder")
    write_tokenizer(folder / "tokenizer")
    write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    write_json(folder / "model_index.json", INDEX)
    return folder


def write_tokenizer(folder: Path, **options: str) -> None:
    """CLIP's tokenizer with the letters for a vocabulary; `options` are the library's."""
    from transformers import CLIPTokenizer

    pieces = ["<|startoftext|>", "<|endoftext|>", *LETTERS, *(letter + "</w>" for letter in LETTERS)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    CLIPTokenizer(vocabulary, [], model_max_length=CONTEXT, **options).save_pretrained(folder)


def write_json(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
