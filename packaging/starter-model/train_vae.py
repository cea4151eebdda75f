"""Train the VAE (Kingma & Welling 2013; Rombach et al. 2022) on random 64x64 crops of the pictures of every style.

Sampling from the posterior slows the start, so the latents are its mean plus a little noise; permuting colour channels
as augmentation hurts. Reads WORK/images.npy, writes WORK/vae.pt (the averaged weights), goes on from
WORK/vae.checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from diffusers import AutoencoderKL
from torch import Tensor

from architecture import make_vae
from files import digest, save_tensors
from pictures import images_file, load_images, to_tensor
from reconstruction import add_noise, reconstruction_loss
from training import Schedule, Training, random_indices

SCHEDULE = Schedule(peak=1.2e-3, warmup=100, floor=0.03)
BATCH = 8
CROP = 64  # pixels
LATENT_NOISE = 0.05
EDGE_WEIGHT = 0.4
PRIOR_WEIGHT = 5e-4
POSTERIOR_LOGVAR = -6.0


def random_crops(images: npt.NDArray[np.uint8], generator: torch.Generator, batch: int = BATCH) -> Tensor:
    """[B, 3, 64, 64] in -1..1 from images [N, H, W, 3]; one in two is mirrored."""
    room = images.shape[1] - CROP + 1
    places = zip(
        random_indices(len(images), batch, generator).tolist(),
        random_indices(room, batch, generator).tolist(),
        random_indices(room, batch, generator).tolist(),
        random_indices(2, batch, generator).tolist(),
        strict=True,
    )
    crops = []
    for image, top, left, mirrored in places:
        crop = images[image, top : top + CROP, left : left + CROP]
        crops.append(crop[:, ::-1] if mirrored else crop)
    return to_tensor(np.stack(crops))


def vae_loss(vae: AutoencoderKL, pictures: Tensor, generator: torch.Generator) -> Tensor:
    posterior = vae.encode(pictures).latent_dist
    decoded = vae.decode(add_noise(posterior.mean, LATENT_NOISE, generator)).sample
    prior: Tensor = posterior.mean.pow(2).mean() + (posterior.logvar - POSTERIOR_LOGVAR).pow(2).mean()
    return reconstruction_loss(decoded, pictures, EDGE_WEIGHT) + PRIOR_WEIGHT * prior


def main(work: Path, minutes: float) -> None:
    torch.manual_seed(0)
    vae = make_vae()
    images = np.array(load_images(work))
    training = Training(vae, SCHEDULE, 1e-4, work / "vae.checkpoint", digest(images_file(work)))
    training.run(lambda generator: vae_loss(vae, random_crops(images, generator), generator), minutes)
    save_tensors(work / "vae.pt", training.average.weights)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    parser.add_argument("--minutes", type=float, required=True, help="time to train, earlier runs included")
    arguments = parser.parse_args()
    main(arguments.work, arguments.minutes)
