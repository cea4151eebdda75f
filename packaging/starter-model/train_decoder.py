"""Sharpen the VAE's decoder alone, on whole pictures and crops of latents; the encoder and its latents stay.

Reads WORK/images.npy, WORK/latents.npy and WORK/vae.pt, writes WORK/vae_sharp.pt (the averaged weights), goes on from
WORK/decoder.checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from architecture import LATENT_SIDE, VAE_FACTOR, make_vae
from encode_pictures import core_pictures, latents_file, load_latents
from files import digest, load_tensors, save_tensors
from pictures import load_images, to_tensor
from reconstruction import add_noise, mean_psnr, reconstruction_loss
from training import Schedule, Training, freeze, random_indices

SCHEDULE = Schedule(peak=5e-4, warmup=50, floor=0.03)
WHOLE_BATCH = 2
CROP_BATCH = 8
CROP = 8  # latents
LATENT_NOISE = 0.07
EDGE_WEIGHT = 0.5
JUDGED = 64  # pictures


def random_pairs(latents: Tensor, images: npt.NDArray[np.uint8], generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Latents with the pixels that they stand for: whole pictures one time, 8x8 latents and 64x64 pixels the other.

    A crop teaches the decoder's group norms to bear other statistics than a whole picture's.
    """
    is_whole = bool(random_indices(2, 1, generator))
    side = LATENT_SIDE if is_whole else CROP
    batch = WHOLE_BATCH if is_whole else CROP_BATCH
    chosen = random_indices(len(latents), batch, generator)
    top, left = random_indices(LATENT_SIDE - side + 1, 2, generator).tolist()
    rows, columns = (slice(start * VAE_FACTOR, (start + side) * VAE_FACTOR) for start in (top, left))
    pixels = to_tensor(images[chosen.numpy()][:, rows, columns])
    return latents[chosen][:, :, top : top + side, left : left + side], pixels


def main(work: Path, minutes: float) -> None:
    vae = make_vae()
    vae.load_state_dict(load_tensors(work / "vae.pt"))
    freeze((vae.encoder, vae.quant_conv))
    images, latents = np.array(load_images(work)), load_latents(work)
    judged = core_pictures(work)[:JUDGED]
    judged_latents, judged_pictures = latents[judged], to_tensor(images[judged])
    before = mean_psnr(vae, judged_latents, judged_pictures)

    def batch_loss(generator: torch.Generator) -> Tensor:
        clean, pixels = random_pairs(latents, images, generator)
        return reconstruction_loss(vae.decode(add_noise(clean, LATENT_NOISE, generator)).sample, pixels, EDGE_WEIGHT)

    training = Training(vae, SCHEDULE, 1e-4, work / "decoder.checkpoint", digest(latents_file(work)))
    training.run(batch_loss, minutes)
    vae.load_state_dict(training.average.weights)
    save_tensors(work / "vae_sharp.pt", training.average.weights)
    print(f"PSNR of {len(judged)} pictures: {before:.2f} -> {mean_psnr(vae, judged_latents, judged_pictures):.2f} dB")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    parser.add_argument("--minutes", type=float, required=True, help="time to train, earlier runs included")
    arguments = parser.parse_args()
    main(arguments.work, arguments.minutes)
