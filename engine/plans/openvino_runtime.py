"""Importing OpenVINO, in child processes only, with its telemetry replaced by nothing."""

from __future__ import annotations

import sys
import types
from typing import Any


class _SilentTelemetry:
    """Answers every call of openvino_telemetry.Telemetry with nothing."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **options: None


def import_openvino() -> Any:
    """The `openvino` module. What sends usage events and writes ~/intel is openvino_telemetry: a stub replaces it."""
    stub: Any = types.ModuleType("openvino_telemetry")
    stub.Telemetry = _SilentTelemetry
    sys.modules["openvino_telemetry"] = stub
    import openvino

    return openvino
