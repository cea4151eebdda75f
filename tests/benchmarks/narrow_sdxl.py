"""A model folder with the architecture of SDXL at about a fifth of its width and random weights, for measuring.

`python -m tests.benchmarks.narrow_sdxl FOLDER` writes it; a folder that is whole is left as it is. Blocks, layers and
transformer depths are SDXL's; channels are 64, 128 and 256 where SDXL has 320, 640 and 1280, heads are 64 wide as
there, and text encoders and VAE are narrower alike.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.benchmarks import sd15

WIDTHS = (128, 256)  # of the text encoders; 768 and 1280 in SDXL
TIME_WIDTH = 256

UNET = sd15.UNET | {
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": TIME_WIDTH,
    "attention_head_dim": [1, 2, 4],
    "block_out_channels": [64, 128, 256],
    "cross_attention_dim": sum(WIDTHS),
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    "projection_class_embeddings_input_dim": WIDTHS[1] + 6 * TIME_WIDTH,
    "sample_size": 128,
    "transformer_layers_per_block": [1, 2, 10],
    "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"],
    "use_linear_projection": True,
}
VAE = sd15.VAE | {"block_out_channels": [32, 64, 128, 128], "sample_size": 1024, "scaling_factor": 0.13025}
TEXT_ENCODER = sd15.TEXT_ENCODER | {
    "hidden_size": WIDTHS[0],
    "intermediate_size": 4 * WIDTHS[0],
    "num_attention_heads": 2,
    "projection_dim": WIDTHS[0],
}
TEXT_ENCODER_2 = sd15.TEXT_ENCODER | {
    "architectures": ["CLIPTextModelWithProjection"],
    "hidden_act": "gelu",
    "hidden_size": WIDTHS[1],
    "intermediate_size": 4 * WIDTHS[1],
    "num_attention_heads": 4,
    "num_hidden_layers": 32,
    "projection_dim": WIDTHS[1],
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
    "timestep_spacing": "leading",
}
INDEX = {
    "_class_name": "StableDiffusionXLPipeline",
    "force_zeros_for_empty_prompt": True,
    "scheduler": ["diffusers", "DDIMScheduler"],
    "text_encoder": ["transformers", "CLIPTextModel"],
    "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
    "tokenizer": ["transformers", "CLIPTokenizer"],
    "tokenizer_2": ["transformers", "CLIPTokenizer"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


def write_model(folder: Path) -> Path:
    """Write the model into `folder`, in diffusers' layout, and return the folder. One that is whole is kept."""
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    index = folder / "model_index.json"
    if index.exists():
        return folder
    unet, vae = {"_class_name": "UNet2DConditionModel"} | UNET, {"_class_name": "AutoencoderKL"} | VAE
    sd15.write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    for tokenizer in ("tokenizer", "tokenizer_2"):
        sd15.write_tokenizer(folder / tokenizer)
    text, second = CLIPTextConfig(**TEXT_ENCODER), CLIPTextConfig(**TEXT_ENCODER_2)
    sd15.write_weights(folder / "text_encoder", "model", TEXT_ENCODER, lambda: CLIPTextModel(text))
    sd15.write_weights(
        folder / "text_encoder_2", "model", TEXT_ENCODER_2, lambda: CLIPTextModelWithProjection(second)
    )  # fmt: skip
    stem = "diffusion_pytorch_model"
    sd15.write_weights(folder / "vae", stem, vae, lambda: AutoencoderKL.from_config(VAE))
    sd15.write_weights(folder / "unet", stem, unet, lambda: UNet2DConditionModel.from_config(UNET))
    sd15.write_json(index, INDEX)  # last, since it says that the folder is whole
    return folder


def count_parameters(folder: Path) -> dict[str, int]:
    """How many weights each part of the folder has."""
    from engine.plans.memory import weight_bytes

    parts = ("text_encoder", "text_encoder_2", "unet", "vae")
    return {part: weight_bytes(folder, part) // 4 for part in parts}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write a narrow SDXL model with random weights.")
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where to; kept if it is whole already")
    print(write_model(parser.parse_args().folder))
    sys.exit(0)
