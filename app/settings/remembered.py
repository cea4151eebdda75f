"""What the window remembers without being asked: form values, sizes and folds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from engine.request import GenerationRequest


class RememberedForm(BaseModel):
    """The form's values; `request` None stands for the model's defaults."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    request: GenerationRequest | None = None
    random_seed: bool = True
    count: int = Field(default=1, ge=1, le=64)


class Remembered(BaseModel):
    """`geometry` is Qt's own, base64; sizes are logical pixels."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    form: RememberedForm = RememberedForm()
    geometry: str = ""
    column_width: int = Field(default=320, ge=280, le=480)
    strip_size: int = Field(default=112, ge=80, le=400)
    column_shown: bool = True
    strip_shown: bool = True
    negative_shown: bool = False
    more_shown: bool = False
