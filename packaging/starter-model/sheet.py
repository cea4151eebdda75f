"""The fixed sheet that a model is judged by: sixteen prompts, two seeds, 30 DDIM steps, guidance scale 4.

Two rows of eight prompts for the first seed, then the same for the second.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from diffusers import StableDiffusionPipeline
from PIL import Image

from architecture import SIDE

PROMPTS = (
    "a red apple, 3d style",
    "grinning cat",
    "dog face, 3d style",
    "rocket",
    "strawberry, 3d style",
    "house with garden",
    "smiling face with sunglasses, 3d style",
    "robot",
    "blue butterfly",
    "pizza",
    "sailboat on the sea",
    "puppy",
    "crying face",
    "golden crown",
    "green frog",
    "birthday cake with candles",
)
SEEDS = (1, 2)
COLUMNS = 8


def make_pictures(pipeline: StableDiffusionPipeline, seed: int) -> list[Image.Image]:
    """One picture for each prompt, each from noise of its own."""
    generators = [torch.Generator().manual_seed(seed * 100 + index) for index in range(len(PROMPTS))]
    made = pipeline(
        list(PROMPTS), num_inference_steps=30, guidance_scale=4.0, generator=generators, height=SIDE, width=SIDE
    )
    return list(made.images)


def main(model: Path, out: Path) -> None:
    pipeline = StableDiffusionPipeline.from_pretrained(model, torch_dtype=torch.float32, local_files_only=True)
    pictures = [picture for seed in SEEDS for picture in make_pictures(pipeline, seed)]
    sheet = Image.new("RGB", (COLUMNS * SIDE, len(pictures) // COLUMNS * SIDE))
    for index, picture in enumerate(pictures):
        sheet.paste(picture, (index % COLUMNS * SIDE, index // COLUMNS * SIDE))
    sheet.save(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    parser.add_argument("--out", type=Path, required=True, help="the PNG file to write")
    arguments = parser.parse_args()
    main(arguments.model, arguments.out)
