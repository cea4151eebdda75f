"""Every setting, declared once: type, default, title and words. The file, its validation and the dialog follow."""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator
from PySide6.QtCore import QT_TRANSLATE_NOOP

from engine.request import EngineSettings, Switch, Weights

CONTEXT = "Settings"


class Theme(StrEnum):
    SYSTEM = "system"
    LIGHT = "light"
    DARK = "dark"


class PreviewInterval(StrEnum):
    """How often a preview is shown, at most."""

    EVERY_STEP = "0"
    SMOOTH = "0.05"
    CALM = "0.5"
    RARE = "2"


_SWITCH = {
    Switch.AUTO: QT_TRANSLATE_NOOP("Settings", "Auto"),
    Switch.ON: QT_TRANSLATE_NOOP("Settings", "On"),
    Switch.OFF: QT_TRANSLATE_NOOP("Settings", "Off"),
}


def _declared(page: str, title: str, description: str, choices: dict[Any, str] | None = None) -> Any:
    extra: dict[str, Any] = {"page": page, "choices": choices or {}}
    return Field(title=title, description=description, json_schema_extra=extra)


_APPEARANCE = QT_TRANSLATE_NOOP("Settings", "Appearance")
_PICTURES = QT_TRANSLATE_NOOP("Settings", "Pictures")
_PREVIEWS = QT_TRANSLATE_NOOP("Settings", "Previews")
_VAE = QT_TRANSLATE_NOOP("Settings", "VAE")
_SPEED = QT_TRANSLATE_NOOP("Settings", "Speed")
_MEMORY = QT_TRANSLATE_NOOP("Settings", "Memory")
_CORES = os.cpu_count() or 1


class Settings(BaseModel):
    """What the user chose in the settings dialog. `output_folder` None stands for the usual pictures folder."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    theme: Annotated[
        Theme,
        _declared(
            _APPEARANCE,
            QT_TRANSLATE_NOOP("Settings", "Theme"),
            QT_TRANSLATE_NOOP("Settings", "System follows your desktop, also when it changes at dusk."),
            {
                Theme.SYSTEM: QT_TRANSLATE_NOOP("Settings", "System"),
                Theme.LIGHT: QT_TRANSLATE_NOOP("Settings", "Light"),
                Theme.DARK: QT_TRANSLATE_NOOP("Settings", "Dark"),
            },
        ),
    ] = Theme.SYSTEM
    output_folder: Annotated[
        Path | None,
        _declared(
            _PICTURES,
            QT_TRANSLATE_NOOP("Settings", "Output folder"),
            QT_TRANSLATE_NOOP("Settings", "Every finished picture is saved here, with all its settings inside."),
        ),
    ] = None
    previews: Annotated[
        bool,
        _declared(
            _PREVIEWS,
            QT_TRANSLATE_NOOP("Settings", "Show previews"),
            QT_TRANSLATE_NOOP("Settings", "Watch the picture develop, step by step."),
        ),
    ] = True
    preview_interval: Annotated[
        PreviewInterval,
        _declared(
            _PREVIEWS,
            QT_TRANSLATE_NOOP("Settings", "How often"),
            QT_TRANSLATE_NOOP("Settings", "Fewer previews leave a little more time for the steps."),
            {
                PreviewInterval.EVERY_STEP: QT_TRANSLATE_NOOP("Settings", "Every step"),
                PreviewInterval.SMOOTH: QT_TRANSLATE_NOOP("Settings", "Up to 20 a second"),
                PreviewInterval.CALM: QT_TRANSLATE_NOOP("Settings", "Up to 2 a second"),
                PreviewInterval.RARE: QT_TRANSLATE_NOOP("Settings", "Every 2 seconds"),
            },
        ),
    ] = PreviewInterval.SMOOTH
    vae_tiling: Annotated[
        Switch,
        _declared(
            _VAE,
            QT_TRANSLATE_NOOP("Settings", "Tiling"),
            QT_TRANSLATE_NOOP("Settings", "Decodes large pictures tile by tile, in a fraction of the memory."),
            _SWITCH,
        ),
    ] = Switch.AUTO
    vae_slicing: Annotated[
        Switch,
        _declared(
            _VAE,
            QT_TRANSLATE_NOOP("Settings", "Slicing"),
            QT_TRANSLATE_NOOP("Settings", "Decodes a batch one picture at a time."),
            _SWITCH,
        ),
    ] = Switch.AUTO

    threads: Annotated[
        int,
        _declared(
            _SPEED,
            QT_TRANSLATE_NOOP("Settings", "Threads"),
            QT_TRANSLATE_NOOP(
                "Settings", "Fewer leave more of the processor to other programs. From the next picture."
            ),
            {0: QT_TRANSLATE_NOOP("Settings", "Auto")} | {number: str(number) for number in range(1, _CORES + 1)},
        ),
    ] = 0

    weights: Annotated[
        Weights,
        _declared(
            _MEMORY,
            QT_TRANSLATE_NOOP("Settings", "Weights"),
            QT_TRANSLATE_NOOP(
                "Settings",
                "Half needs two thirds of the memory and shows no difference; 8-bit needs half and shows a little.",
            ),
            {
                Weights.FULL: QT_TRANSLATE_NOOP("Settings", "Full"),
                Weights.HALF: QT_TRANSLATE_NOOP("Settings", "Half"),
                Weights.INT8: QT_TRANSLATE_NOOP("Settings", "8-bit"),
            },
        ),
    ] = Weights.FULL

    @field_validator("threads")
    @classmethod
    def _within_this_computer(cls, threads: int) -> int:
        """Settings may come from another computer."""
        return threads if 0 <= threads <= _CORES else 0

    def for_engine(self, pictures: Path, plans: Path) -> EngineSettings:
        """The engine's part of the settings; `pictures` is the output folder where none was chosen."""
        return EngineSettings(
            output_folder=self.output_folder or pictures,
            plan_folder=plans,
            previews=self.previews,
            preview_interval=float(self.preview_interval),
            vae_tiling=self.vae_tiling,
            vae_slicing=self.vae_slicing,
            threads=self.threads,
            weights=self.weights,
        )
