"""Write the trained networks as a diffusers Stable Diffusion folder in fp16 safetensors.

Reads WORK/vae_sharp.pt, WORK/latent_statistics.pt, WORK/unet.pt and MiniLM, writes WORK/starter.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from torch import Tensor

from architecture import NOISE, make_unet, make_vae
from encode_pictures import load_statistics
from encode_texts import load_text_encoder, minilm_folder
from files import load_tensors


@torch.no_grad()
def normalise_vae(vae: AutoencoderKL, mean: Tensor, std: Tensor) -> None:
    """Change the quant convolutions so that latents x become (x - mean) / std, and decode to the same pictures.

    `mean` and `std` are [4], of the latents over the training pictures. With latents of N(0, 1) per channel the
    scaling factor, which diffusers has one of for all channels, is 1. Calling it twice normalises twice.
    """
    quant, post_quant = vae.quant_conv, vae.post_quant_conv
    means, log_variances = slice(None, len(mean)), slice(len(mean), None)  # of the posterior, in this order
    quant.weight[means] /= std.view(-1, 1, 1, 1)
    quant.bias[means] = (quant.bias[means] - mean) / std
    quant.bias[log_variances] -= 2 * std.log()
    post_quant.bias += post_quant.weight[:, :, 0, 0] @ mean
    post_quant.weight *= std.view(1, -1, 1, 1)


def save_folder(
    folder: Path, vae: AutoencoderKL, unet: UNet2DConditionModel, text_encoder: Any, tokenizer: Any
) -> None:
    """Write the folder beside, then rename it, in place of an older one."""
    text_encoder.config.use_attention_mask = True  # diffusers hands the mask on only where this is set
    scheduler = DDIMScheduler(
        **NOISE, clip_sample=False, set_alpha_to_one=False, steps_offset=1, timestep_spacing="trailing"
    )
    pipeline = StableDiffusionPipeline(
        vae=vae.eval(),
        unet=unet.eval(),
        text_encoder=text_encoder.eval(),
        tokenizer=tokenizer,
        scheduler=scheduler,
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    pipeline.to(torch.float16).save_pretrained(partial, safe_serialization=True)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def main(work: Path) -> None:
    vae = make_vae(scaling_factor=1.0)
    vae.load_state_dict(load_tensors(work / "vae_sharp.pt"))
    normalise_vae(vae, *load_statistics(work))
    unet = make_unet()
    unet.load_state_dict(load_tensors(work / "unet.pt"))
    save_folder(work / "starter", vae, unet, *load_text_encoder(minilm_folder(work)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    main(parser.parse_args().work)
