"""What a picture file says about how it was made.

Every parameter is held twice, both before the pixels: an iTXt chunk `safelight` with one JSON block, which gives the
identical request back, and a chunk `parameters` with the text that AUTOMATIC1111's web UI and the tools around it read.
"""

from __future__ import annotations

import io
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from engine.errors import PictureUnreadable
from engine.events import MadeWith, RgbImage
from engine.pictures import parameters, png
from engine.request import GenerationRequest
from engine.validation import first_fault

BLOCK, PARAMETERS = "safelight", "parameters"
VERSION = 1
UNKNOWN_PLAN = "unknown"  # of another program's picture


class _Head(BaseModel):
    version: int


class _Block(BaseModel):
    model_config = ConfigDict(frozen=True)

    version: int = VERSION
    request: GenerationRequest
    made_with: MadeWith


def encode_png(image: RgbImage, request: GenerationRequest, made_with: MadeWith) -> bytes:
    """The picture as a whole PNG file, 8-bit RGB, with its settings in it.

    Raises `ValueError` where `image.pixels` doesn't hold `height * width * 3` bytes.
    """
    # Pillow is loaded here, so that whoever only reads settings needs no image library.
    from PIL import Image
    from PIL.PngImagePlugin import PngInfo

    if len(image.pixels) != image.width * image.height * 3:
        raise ValueError(f"{len(image.pixels)} bytes of pixels for a picture of {image.width}×{image.height}")
    chunks = PngInfo()
    block = _Block(request=request, made_with=made_with).model_dump(mode="json")
    chunks.add_itxt(BLOCK, json.dumps(block, ensure_ascii=False))
    chunks.add_text(PARAMETERS, parameters_text(request, made_with).replace("\0", " "))
    file = io.BytesIO()
    Image.frombytes("RGB", (image.width, image.height), image.pixels).save(file, "PNG", pnginfo=chunks)
    return file.getvalue()


def parameters_text(request: GenerationRequest, made_with: MadeWith) -> str:
    """The settings as AUTOMATIC1111's web UI writes them: prompt, negative prompt, one line of fields."""
    return parameters.write(request, made_with)


def read_settings(path: Path) -> tuple[GenerationRequest, MadeWith]:
    """The settings that made a picture, without looking at its pixels.

    Of a picture with AUTOMATIC1111's text alone, the fields that Safelight knows are taken, the rest are defaults and
    the plan is `UNKNOWN_PLAN`. Reads at most a few megabytes, however large the file. Raises `PictureUnreadable`.
    """
    texts = png.read_texts(path, stop_after=BLOCK)
    if (block := texts.get(BLOCK)) is not None:
        return _read_block(path, block)
    found = parameters.read(texts[PARAMETERS]) if PARAMETERS in texts else None
    if found is None:
        raise PictureUnreadable(f"{path.name} holds no settings: it wasn't made by Safelight, or they were taken out.")
    return found, MadeWith(plan=UNKNOWN_PLAN, batch=1)


def _read_block(path: Path, block: str) -> tuple[GenerationRequest, MadeWith]:
    try:
        if _Head.model_validate_json(block).version > VERSION:
            raise PictureUnreadable(f"{path.name} was made by a newer Safelight; this one can't read its settings.")
        read = _Block.model_validate_json(block)
    except ValidationError as error:
        raise PictureUnreadable(f"{path.name} holds settings that Safelight can't use ({_fault(error)}).") from error
    return read.request, read.made_with


def _fault(error: ValidationError) -> str:
    where, what = first_fault(error)
    return f"{where.removeprefix('request.') or 'the whole'} {what}"
