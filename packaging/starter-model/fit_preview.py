"""Fit the linear map from latents to colours that previews are made with, and write it into MODEL/safelight.json.

RGB in -1..1 = latents @ factors + bias, by least squares over the core pictures: their latents come from the model's
own encoder, their colours from its decoder, averaged over the 8x8 pixels that one latent stands for. Reads
WORK/images.npy and WORK/pictures.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from diffusers import AutoencoderKL
from torch import Tensor
from torch.nn import functional
from tqdm import tqdm

from architecture import VAE_FACTOR
from encode_pictures import core_pictures
from pictures import load_images, to_tensor
from settings_file import read_settings, write_settings

BATCH = 16
DECIMALS = 4


@torch.inference_mode()
def latents_and_colours(vae: AutoencoderKL, pictures: Tensor) -> tuple[Tensor, Tensor]:
    """Latents [N, 4] (times the scaling factor, as samplers see them) and colours [N, 3] from pictures [B, 3, H, W]."""
    latents, colours = [], []
    for part in tqdm(pictures.split(BATCH), "preview"):
        unscaled = vae.encode(part).latent_dist.mean
        decoded = vae.decode(unscaled).sample.clamp(-1, 1)
        latents.append(unscaled * vae.config.scaling_factor)
        colours.append(functional.avg_pool2d(decoded, VAE_FACTOR))
    return _as_rows(torch.cat(latents)), _as_rows(torch.cat(colours))


def fit(latents: Tensor, colours: Tensor) -> tuple[Tensor, Tensor]:
    """Factors [4, 3] and bias [3] with the least squared error of latents @ factors + bias against colours."""
    columns = torch.cat([latents, torch.ones(len(latents), 1)], dim=1).double()
    solution = torch.linalg.lstsq(columns, colours.double()).solution
    return solution[:-1].float(), solution[-1].float()


def explained(latents: Tensor, colours: Tensor, factors: Tensor, bias: Tensor) -> float:
    """R²: the share of the colours' variance that the map explains, all three channels together."""
    residual = (latents @ factors + bias - colours).pow(2).sum()
    total = (colours - colours.mean(0)).pow(2).sum()
    return (1 - residual / total).item()


def write_factors(model: Path, factors: Tensor, bias: Tensor) -> None:
    """Put the map into the settings beside the model; the other settings stay."""
    settings = read_settings(model)
    settings["latent_rgb"] = {
        "factors": [[round(value, DECIMALS) for value in row] for row in factors.tolist()],
        "bias": [round(value, DECIMALS) for value in bias.tolist()],
    }
    write_settings(model, settings)


def _as_rows(maps: Tensor) -> Tensor:
    """[B, C, H, W] -> [B * H * W, C]."""
    return maps.permute(0, 2, 3, 1).flatten(0, 2)


def main(work: Path, model: Path) -> None:
    vae = AutoencoderKL.from_pretrained(model / "vae", torch_dtype=torch.float32, local_files_only=True).eval()
    core = core_pictures(work)
    fitted, held_out = (to_tensor(load_images(work)[core[start::2]]) for start in (0, 1))
    factors, bias = fit(*latents_and_colours(vae, fitted))
    share = explained(*latents_and_colours(vae, held_out), factors, bias)
    write_factors(model, factors, bias)
    print(f"R² {share:.4f} on {len(held_out)} pictures that the fit on {len(fitted)} others has not seen")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    parser.add_argument("--model", type=Path, required=True, help="the model's folder")
    arguments = parser.parse_args()
    main(arguments.work, arguments.model)
