"""safelight.json says beside a model what its configs can't: its name, and the settings that it looks best with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

NAME = "safelight.json"
STARTER: dict[str, Any] = {
    "name": "Starter",
    "examples": [
        "a red apple, 3d style",
        "dog face, 3d style",
        "smiling face with sunglasses, 3d style",
        "house with garden",
    ],
    "width": 128,
    "height": 128,
    "steps": 30,
    "guidance_scale": 4.0,
    "sampler": "DDIM",
    "max_side": 512,
}


def read_settings(model: Path) -> dict[str, Any]:
    """The settings beside the model, or the starter's where there are none yet."""
    path = model / NAME
    if not path.exists():
        return dict(STARTER)
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


def write_settings(model: Path, settings: dict[str, Any]) -> None:
    """One line for each setting."""
    lines = [f"  {json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in settings.items()]
    partial = model / f"{NAME}.partial"
    partial.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    partial.replace(model / NAME)
