"""The child process that turns torch modules into OpenVINO models. Conversion is long, pure-Python work.

Messages in: ("convert", model folder, component, path to write, layers that take low-rank pairs, weights).
Out: ("converted",) or ("refused", sentence).
"""

from __future__ import annotations

import os
import threading
import warnings
from pathlib import Path

from engine.plans.openvino_runtime import import_openvino
from engine.plans.wire import Wire
from engine.request import Weights


def serve(wire: Wire) -> None:
    """Convert one component after the other until the pipe closes, at the lowest priority."""
    if hasattr(os, "nice"):
        os.nice(19)
    while True:
        try:
            _, folder, component, path, adapted, weights = wire.receive()
        except EOFError:
            return
        job = wire, Path(folder), component, Path(path), adapted, Weights(weights)
        threading.Thread(target=_answer, args=job, daemon=True).start()


def _answer(wire: Wire, folder: Path, component: str, path: Path, adapted: tuple[str, ...], weights: Weights) -> None:
    try:
        convert(folder, component, path, adapted, weights)
        wire.send("converted")
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            os._exit(1)
        wire.send("refused", f"{path} can't be written: {error.strerror}")
    except Exception as error:
        wire.send("refused", f"{type(error).__name__}: {error}")


def convert(
    folder: Path, component: str, path: Path, adapted: tuple[str, ...] = (), weights: Weights = Weights.FULL
) -> None:
    """Write the component as an OpenVINO model in f32, with every size left open: `path` (.xml) and its .bin.

    Large weights are written as `weights` says, which must be FULL for the VAE. Layers named in `adapted` take
    low-rank pairs, of any rank that they share, as inputs after the component's own.
    """
    import torch

    from engine.importing import import_torch
    from engine.lora.adapted import with_adapters
    from engine.lora.layout import example_adapter_inputs
    from engine.models.components import Component, as_function, example_inputs
    from engine.models.load import load_module
    from engine.plans.reduced import reduce_weights

    import_torch()
    warnings.simplefilter("ignore")  # tracing warns of every branch on a shape: nothing of it is news to a person
    openvino = import_openvino()
    part = Component(component)
    module = load_module(folder, part.folder, narrow=weights is not Weights.FULL)
    function = with_adapters(as_function(part, module), adapted)
    example = example_inputs(part, module) + example_adapter_inputs(module, adapted)
    with torch.no_grad():
        model = openvino.convert_model(function, example_input=example)
    if weights is not Weights.FULL:
        model = reduce_weights(model, weights)
    openvino.save_model(model, path, compress_to_fp16=False)
