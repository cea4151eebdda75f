"""Encode every picture with the trained VAE, once, for the trainings that learn from latents.

Reads WORK/images.npy and WORK/vae.pt, writes WORK/latents.npy (float32 [N, 4, 16, 16], the posterior's mean) and
WORK/latent_statistics.pt: mean and standard deviation [4] over the pictures that the noise predictor ends with, which
`export.py` bakes into the VAE.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from architecture import make_vae
from files import load_tensors, save_array, save_tensors
from pictures import core_concepts, load_images, load_pictures, to_tensor

BATCH = 32
STYLE = "3d"  # the one style that the noise predictor learns


def latents_file(work: Path) -> Path:
    return work / "latents.npy"


def load_latents(work: Path) -> Tensor:
    """float32 [N, 4, 16, 16], as the encoder gives them, not normalised."""
    return torch.from_numpy(np.load(latents_file(work)))


def load_statistics(work: Path) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation [4] of the latents."""
    statistics = load_tensors(work / "latent_statistics.pt")
    return statistics["mean"], statistics["std"]


def core_pictures(work: Path) -> list[int]:
    """Indices of the pictures that the noise predictor ends with."""
    concepts = core_concepts()
    pictures = load_pictures(work)
    return [index for index, it in enumerate(pictures) if it.style == STYLE and it.label in concepts]


@torch.inference_mode()
def main(work: Path) -> None:
    vae = make_vae().eval()
    vae.load_state_dict(load_tensors(work / "vae.pt"))
    images = load_images(work)
    starts = range(0, len(images), BATCH)
    latents = torch.cat(
        [vae.encode(to_tensor(images[start : start + BATCH])).latent_dist.mean for start in tqdm(starts, "latents")]
    )
    core = latents[core_pictures(work)]
    save_tensors(work / "latent_statistics.pt", {"mean": core.mean((0, 2, 3)), "std": core.std((0, 2, 3))})
    save_array(latents_file(work), latents.numpy())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    main(parser.parse_args().work)
