"""Render the training pictures: every base emoji of Unicode in up to four openly licensed drawing styles.

Reads the npm packages of package.json under WORK/node_modules. Writes WORK/images.npy (uint8 [N, 128, 128, 3]:
a drawing of 112 pixels, centred on white) and WORK/pictures.json (label, tags, style, group, hexcode of each).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from tqdm import tqdm

from architecture import SIDE
from pictures import Picture, save_pictures

PACKS = {"3d": "fluent-emoji", "flat": "fluent-emoji-flat", "noto": "noto", "twemoji": "twemoji"}
SKIPPED_GROUPS = (2, 9, None)  # skin-tone components, flags, unassigned
DRAWING_SIDE = 112  # pixels


def slug(label: str) -> str:
    """The name under which Iconify's packs hold the emoji with this label of emojibase."""
    text = re.sub(r"[’'“”\"!.,()]", "", label.lower().replace("&", "and"))
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-")


def svg_of(pack: dict[str, Any], icon: dict[str, Any]) -> str:
    """A whole SVG document from an icon of Iconify's JSON format (https://iconify.design/docs/types/iconify-json.html)."""
    width, height = (icon.get(side, pack.get(side, 16)) for side in ("width", "height"))
    view_box = f"{icon.get('left', 0)} {icon.get('top', 0)} {width} {height}"
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
        f'viewBox="{view_box}" width="{width}" height="{height}">{icon["body"]}</svg>'
    )


def render(svg: str) -> npt.NDArray[np.uint8]:
    """uint8 [128, 128, 3]."""
    import resvg_py

    png = bytes(resvg_py.svg_to_bytes(svg_string=svg, width=DRAWING_SIDE, height=DRAWING_SIDE, skip_system_fonts=True))
    drawing = Image.open(io.BytesIO(png)).convert("RGBA")
    page = Image.new("RGBA", (SIDE, SIDE), "white")
    page.paste(drawing, ((SIDE - drawing.width) // 2, (SIDE - drawing.height) // 2), drawing)
    return np.asarray(page.convert("RGB"))


def drawings(modules: Path) -> Iterator[tuple[Picture, str]]:
    """Every picture with its SVG document, in the order of emojibase, styles as in `PACKS`."""
    emoji = json.loads((modules / "emojibase-data/en/data.json").read_text(encoding="utf-8"))
    packs = {
        style: json.loads((modules / f"@iconify-json/{name}/icons.json").read_text(encoding="utf-8"))
        for style, name in PACKS.items()
    }
    for entry in emoji:
        if entry.get("group") in SKIPPED_GROUPS:
            continue
        for style, pack in packs.items():
            icon = pack["icons"].get(slug(entry["label"]))
            if icon is not None:
                tags = tuple(entry.get("tags", ()))
                yield Picture(entry["label"], tags, style, entry["group"], entry["hexcode"]), svg_of(pack, icon)


def main(work: Path) -> None:
    pictures, documents = zip(*drawings(work / "node_modules"), strict=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        rendered = list(tqdm(pool.map(render, documents), "pictures", len(documents)))
    save_pictures(work, np.stack(rendered), list(pictures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder of everything in between")
    main(parser.parse_args().work)
