"""The tiny model's UNet and text encoder, which no test changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="session")
def unet(tiny_model: Path) -> Any:
    from engine.models.load import load_module

    return load_module(tiny_model, "unet")


@pytest.fixture(scope="session")
def text_encoder(tiny_model: Path) -> Any:
    from engine.models.load import load_module

    return load_module(tiny_model, "text_encoder")


@pytest.fixture(scope="session")
def modules(unet: Any, text_encoder: Any) -> dict[str, Any]:
    return {"unet": unet, "text_encoder": text_encoder}
