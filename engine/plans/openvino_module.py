"""Inside a plan's process: a converted model, read, compiled and run by OpenVINO."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from engine.plans.mapped_file import let_go_of_pages
from engine.plans.openvino_runtime import import_openvino


class OpenVinoModule:
    """One compiled model with one inference request. Arrays in and out are f32 or int64."""

    def __init__(self, path: str, shapes: Sequence[tuple[int, ...]] | None, threads: int) -> None:
        """Compile the model at `path` for the inputs' `shapes`, or for every size where they are None."""
        openvino = import_openvino()
        core = openvino.Core()
        model = core.read_model(path)
        if shapes is not None:
            model.reshape({port: list(shape) for port, shape in zip(model.inputs, shapes, strict=True)})
        # f32 whatever the device would rather use, so that results stay within rounding of eager ones: inputs of int8
        # weights, too, aren't to be rounded to int8.
        config: dict[str, Any] = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }
        if threads:
            config["INFERENCE_NUM_THREADS"] = threads
        self._request = core.compile_model(model, "CPU", config).create_infer_request()
        let_go_of_pages(Path(path).with_suffix(".bin"))  # the plan has its weights laid out in its own way by now

    def start(self, arrays: list[Any]) -> None:
        self._request.start_async(arrays, share_inputs=True)

    def wait(self) -> Any:
        self._request.wait()
        return self._request.get_output_tensor(0).data

    def interrupt(self) -> None:
        self._request.cancel()
