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


def why_unwritable(folder: Path) -> str | None:
    """A clause saying why nothing can be written into `folder`, or why it can't be made where only itself is missing.

    None where all is well. Tried with a file that is gone again at once, since what permissions say isn't what every
    system does. It may take long on a network drive.
    """
    try:
        if folder.exists() and not folder.is_dir():
            return f"{folder} is a file"
        into = folder if folder.exists() else folder.parent
        if not into.exists():
            return f"{into} doesn't exist"
        trial = into / f".safelight-{os.getpid()}.tmp"
        trial.write_bytes(b"")
        trial.unlink()
    except FileNotFoundError:
        return f"nothing can be written into {into}"
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        return f"{folder} can't be written to ({getattr(error, 'strerror', None) or error})"
    return None


def why_no_home() -> str | None:
    """A sentence saying why the folder that `SAFELIGHT_HOME` names can't be used; None where it can, or none is named.

    The folder is made, with those above it.
    """
    if not (named := os.environ.get(HOME_VARIABLE)):
        return None
    try:
        home = Path(named).expanduser().absolute()
        reason = f"{home} is a file" if home.is_file() else None
        if reason is None:
            home.mkdir(parents=True, exist_ok=True)
            reason = why_unwritable(home)
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: the home of a user who isn't there
        reason = f"{named} can't be made ({str(getattr(error, 'strerror', None) or error).rstrip('.')})"
    return reason and f"{HOME_VARIABLE} can't be used: {reason}. Name another folder, or unset it."


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
