"""Put the finished model in the place that it ships from, as a whole."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path


def publish(model: Path, out: Path) -> None:
    """Copy `model` beside `out`, then let the copy take the place of `out`."""
    partial = out.with_name(out.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(model, partial)
    shutil.rmtree(out, ignore_errors=True)
    partial.rename(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="the finished model's folder")
    parser.add_argument("--out", type=Path, required=True, help="where it ships from")
    arguments = parser.parse_args()
    publish(arguments.model, arguments.out)
