"""Train the noise predictor on latents: first on all broad concepts, then (--start) on the core ones of concepts.txt.

Loss: v-prediction (Salimans & Ho 2022) with min-SNR weights (gamma 5, Hang et al. 2023). One prompt in ten is empty,
for classifier-free guidance (Ho & Salimans 2022). Reads what `encode_pictures.py` and `encode_texts.py` wrote, writes
WORK/NAME.pt (the averaged weights), goes on from WORK/NAME.checkpoint.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from diffusers import UNet2DConditionModel
from torch import Tensor

from architecture import make_noise_schedule, make_unet
from encode_pictures import latents_file, load_latents, load_statistics
from encode_texts import load_texts
from files import digest, load_tensors, save_tensors
from pictures import core_concepts, load_pictures
from training import Schedule, Training, random_indices

SCHEDULE = Schedule(peak=7e-4, warmup=150, floor=0.05)
BATCH = 32
EMPTY_PROMPTS = 0.1
SNR_GAMMA = 5.0
WORDINGS = 5


def v_prediction_loss(
    unet: UNet2DConditionModel, clean: Tensor, text: Tensor, alphas: Tensor, generator: torch.Generator
) -> Tensor:
    """Weighted squared error of the predicted velocity.

    `clean` is [B, 4, 16, 16] and normalised, `text` [B, 32, 384], `alphas` the cumulative products of the schedule.
    """
    timesteps = random_indices(len(alphas), len(clean), generator)
    alpha = alphas[timesteps].view(-1, 1, 1, 1)
    noise = torch.randn(clean.shape, generator=generator)
    noisy = alpha.sqrt() * clean + (1 - alpha).sqrt() * noise
    velocity = alpha.sqrt() * noise - (1 - alpha).sqrt() * clean
    snr = alpha / (1 - alpha)
    weight = snr.clamp(max=SNR_GAMMA) / (snr + 1)
    predicted: Tensor = unet(noisy, timesteps, text, return_dict=False)[0]
    return (weight * (predicted - velocity).pow(2)).mean()


class Examples:
    """Normalised latents with the text of one of their wordings, or with the empty prompt's."""

    def __init__(self, latents: Tensor, rows: list[int], states: npt.NDArray[np.float16]) -> None:
        """`rows` says at which picture of `states` each of `latents` has its wordings."""
        self._latents = latents
        self._rows = torch.tensor(rows)
        self._states = states

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Latents [32, 4, 16, 16] and text [32, 32, 384]."""
        chosen = random_indices(len(self._latents), BATCH, generator)
        wording = self._rows[chosen] * WORDINGS + random_indices(WORDINGS, BATCH, generator)
        wording[torch.rand(BATCH, generator=generator) < EMPTY_PROMPTS] = len(self._states) - 1
        return self._latents[chosen], torch.from_numpy(self._states[wording.numpy()]).float()


def load_examples(work: Path, is_core: bool) -> Examples:
    pictures = load_pictures(work)
    indices, states = load_texts(work)
    concepts = core_concepts()
    rows = [row for row, index in enumerate(indices) if not is_core or pictures[index].label in concepts]
    mean, std = (value.view(1, -1, 1, 1) for value in load_statistics(work))
    latents = (load_latents(work)[[indices[row] for row in rows]] - mean) / std
    return Examples(latents, rows, states)


def main(work: Path, name: str, minutes: float, start: Path | None) -> None:
    torch.manual_seed(0)
    unet = make_unet()
    made_from = digest(latents_file(work)) + digest(work / "texts.npy")
    if start is not None:
        unet.load_state_dict(load_tensors(start))
        made_from += digest(start)
    examples = load_examples(work, is_core=start is not None)
    alphas = make_noise_schedule().alphas_cumprod

    def batch_loss(generator: torch.Generator) -> Tensor:
        return v_prediction_loss(unet, *examples.draw(generator), alphas, generator)

    training = Training(unet, SCHEDULE, 0.01, work / f"{name}.checkpoint", made_from)
    training.run(batch_loss, minutes)
    save_tensors(work / f"{name}.pt", training.average.weights)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    parser.add_argument("--name", required=True, help="what to call the weights and the checkpoint")
    parser.add_argument("--minutes", type=float, required=True, help="time to train, earlier runs included")
    parser.add_argument("--start", type=Path, help="weights of an earlier phase; the core concepts follow")
    arguments = parser.parse_args()
    main(arguments.work, arguments.name, arguments.minutes, arguments.start)
