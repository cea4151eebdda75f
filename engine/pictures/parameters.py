"""The `parameters` text of AUTOMATIC1111's web UI, written and read.

The prompt's lines, then "Negative prompt: …", then one line of fields: "Steps: 30, Sampler: Euler a, CFG scale: 4, …".
Values with a comma, a colon or a newline are quoted as JSON strings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from pydantic import ValidationError

from engine.events import MadeWith
from engine.request import GenerationRequest, LoraUse, Sampler

NEGATIVE = "Negative prompt:"
# The web UI knows PNDM without its Runge-Kutta steps as PLMS; Karras schedules were part of the sampler's name until
# its version 1.9, which still reads that name.
_FOREIGN_NAMES = {Sampler.PNDM: "PLMS"}


def write(request: GenerationRequest, made_with: MadeWith) -> str:
    fields = {
        "Steps": str(request.steps),
        "Sampler": _FOREIGN_NAMES.get(request.sampler, request.sampler.value),
        "CFG scale": f"{request.guidance_scale:.15g}",
        "Seed": str(request.seed),
        "Size": f"{request.width}x{request.height}",
        "Model": PurePath(request.model).name or request.model,
        "Version": f"Safelight {made_with.safelight}".strip(),
    }
    lines = [" ".join([request.prompt, *map(_tag, request.loras)]).lstrip(" ") if request.loras else request.prompt]
    if request.negative_prompt:
        lines.append(f"{NEGATIVE} {request.negative_prompt}")
    lines.append(", ".join(f"{name}: {_quoted(value)}" for name, value in fields.items()))
    return "\n".join(lines)


def _tag(lora: LoraUse) -> str:
    """A LoRA as the web UI names one: by its file's name without the ending."""
    return f"<lora:{PurePath(lora.file).stem}:{lora.strength:.15g}>"


def read(text: str) -> GenerationRequest | None:
    """The request that a text describes, or None where it has no line of fields.

    Fields that are unknown, or out of Safelight's range, are left at their defaults.
    """
    lines = text.split("\n")
    at = max((number for number, line in enumerate(lines) if line.startswith("Steps:")), default=None)
    if at is None:
        return None
    fields = dict(_fields(lines[at]))
    prompt, negative = _prompts(lines[:at])
    width, _, height = fields.get("Size", "").partition("x")
    found = {
        "prompt": prompt,
        "negative_prompt": negative,
        "width": _integer(width),
        "height": _integer(height),
        "steps": _integer(fields["Steps"]),
        "guidance_scale": _number(fields.get("CFG scale", "")),
        "sampler": _sampler(fields.get("Sampler", ""), fields.get("Schedule type", "")),
        "seed": _integer(fields.get("Seed", "")),
    }
    request = GenerationRequest()
    for name, value in found.items():
        request = _with(request, name, value)
    return request


def _with(request: GenerationRequest, name: str, value: Any) -> GenerationRequest:
    if value is None:
        return request
    try:
        return GenerationRequest.model_validate(request.model_dump() | {name: value})
    except ValidationError:
        return request


def _prompts(lines: list[str]) -> tuple[str, str]:
    prompts: tuple[list[str], list[str]] = ([], [])
    negative = False
    for line in lines:
        if not negative and line.startswith(NEGATIVE):
            negative, line = True, line.removeprefix(NEGATIVE).lstrip(" ")
        prompts[negative].append(line)
    return "\n".join(prompts[0]), "\n".join(prompts[1])


def _fields(line: str) -> Iterator[tuple[str, str]]:
    """Names and values of the line of fields. One pass, so that no text can make it slow."""
    start, quoted, escaped = 0, False, False
    for at, letter in enumerate(line + ","):
        if escaped:
            escaped = False
        elif quoted and letter == "\\":
            escaped = True
        elif letter == '"':
            quoted = not quoted
        if at == len(line) or (letter == "," and not quoted):
            name, colon, value = line[start:at].partition(":")
            if colon:
                yield name.strip(), _unquoted(value.strip())
            start = at + 1


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False) if set(value) & set(',:\n"') else value


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    try:
        return str(json.loads(value))
    except ValueError:
        return value


def _integer(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 20 else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _sampler(name: str, schedule: str) -> Sampler | None:
    if schedule.casefold() == "karras" and not name.casefold().endswith("karras"):
        name = f"{name} Karras"
    known = {sampler.value.casefold(): sampler for sampler in Sampler}
    known |= {foreign.casefold(): sampler for sampler, foreign in _FOREIGN_NAMES.items()}
    return known.get(name.casefold())
