"""Where Safelight keeps things, and the environment that keeps its libraries inside those places.

`SAFELIGHT_HOME` puts every folder under one path; without it they are the system's usual ones.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import platformdirs

NAME = "Safelight"
HOME_VARIABLE = "SAFELIGHT_HOME"


def config() -> Path:
    return _place("config", platformdirs.user_config_path(_folder_name(), appauthor=False))


def settings_file() -> Path:
    """What the user chose in the settings dialog."""
    return config() / "settings.json"


def window_file() -> Path:
    """What the window remembers without being asked."""
    return config() / "window.json"


def data() -> Path:
    return _place("data", platformdirs.user_data_path(_folder_name(), appauthor=False))


def cache() -> Path:
    return _place("cache", platformdirs.user_cache_path(_folder_name(), appauthor=False))


def logs() -> Path:
    return _place("logs", platformdirs.user_log_path(_folder_name(), appauthor=False))


def plans() -> Path:
    """Compiled plans: they can be built again, so they lie in the cache."""
    return cache() / "plans"


def pictures() -> Path:
    """Where finished pictures go unless the user chose another folder."""
    return _place("pictures", platformdirs.user_pictures_path() / NAME)


def make_pictures() -> None:
    """Make the usual folder of pictures with those above it, which a new account may lack.

    Only this one: a folder that the user chose may lie on a drive that is away. Where it fails, saving says why.
    """
    with contextlib.suppress(OSError):
        pictures().mkdir(parents=True, exist_ok=True)


def prepare_environment() -> None:
    """Keep libraries offline, silent and inside our cache folder. Call it before any of them is imported.

    Variables that name folders are replaced, those that forbid something are set; child processes inherit both.
    """
    place = cache()
    os.environ.update(
        HF_HOME=str(place / "huggingface"),
        TORCH_HOME=str(place / "torch"),
        TORCHINDUCTOR_CACHE_DIR=str(place / "inductor"),
        TRITON_CACHE_DIR=str(place / "triton"),
        HF_HUB_OFFLINE="1",
        TRANSFORMERS_OFFLINE="1",
        HF_HUB_DISABLE_TELEMETRY="1",
        DISABLE_TELEMETRY="1",
        DO_NOT_TRACK="1",
        PYDANTIC_DISABLE_PLUGINS="__all__",  # it would look through every installed package for some
        TOKENIZERS_PARALLELISM="false",
    )


def _folder_name() -> str:
    """Lower case where folders usually are, the product's name where people look at them."""
    return NAME if os.name == "nt" or os.uname().sysname == "Darwin" else NAME.lower()


def _place(name: str, usual: Path) -> Path:
    home = os.environ.get(HOME_VARIABLE)
    return Path(home).expanduser().absolute() / name if home else usual
