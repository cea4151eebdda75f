"""What ships beside the code. Everything is found relative to `ROOT`, from source, installed or frozen."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent
STARTER_MODEL = ROOT / "models" / "starter"
