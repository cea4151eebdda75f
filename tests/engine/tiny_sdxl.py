"""A model folder in diffusers' SDXL layout, with random weights and small enough to load in a blink."""

from __future__ import annotations

from pathlib import Path

from tests.engine import tiny_model as tiny

WIDTHS = (32, 48)
WIDTH, POOLED = sum(WIDTHS), WIDTHS[1]
TIME_WIDTH = 8

UNET = tiny.UNET | {
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": TIME_WIDTH,
    "attention_head_dim": [2, 4],
    "block_out_channels": [32, 64],
    "cross_attention_dim": WIDTH,
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
    "projection_class_embeddings_input_dim": POOLED + 6 * TIME_WIDTH,
    "transformer_layers_per_block": [1, 2],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    "use_linear_projection": True,
}
TEXT_ENCODER_2 = tiny.TEXT_ENCODER | {
    "hidden_act": "gelu",
    "hidden_size": POOLED,
    "num_hidden_layers": 3,
    "pad_token_id": 2,
    "projection_dim": POOLED,
}
SCHEDULER = tiny.SCHEDULER | {"timestep_spacing": "leading"}
INDEX = tiny.INDEX | {
    "_class_name": "StableDiffusionXLPipeline",
    "force_zeros_for_empty_prompt": True,
    "text_encoder_2": ["transformers", "CLIPTextModelWithProjection"],
    "tokenizer_2": ["transformers", "CLIPTokenizer"],
}


def write(folder: Path) -> Path:
    """Write the model into `folder` as diffusers and transformers themselves write one. Seeded: always the same."""
    import torch
    from diffusers import AutoencoderKL, UNet2DConditionModel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

    with torch.random.fork_rng():
        torch.manual_seed(0)
        UNet2DConditionModel.from_config(UNET).save_pretrained(folder / "unet")
        AutoencoderKL.from_config(tiny.VAE).save_pretrained(folder / "vae")
        CLIPTextModel(CLIPTextConfig(**tiny.TEXT_ENCODER)).save_pretrained(folder / "text_encoder")
        second = CLIPTextModelWithProjection(CLIPTextConfig(**TEXT_ENCODER_2))
        second.save_pretrained(folder / "text_encoder_2")
    tiny.write_tokenizer(folder / "tokenizer")
    tiny.write_tokenizer(folder / "tokenizer_2", pad_token="a")
    tiny.write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    tiny.write_json(folder / "model_index.json", INDEX)
    return folder
