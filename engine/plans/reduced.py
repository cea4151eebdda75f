"""OpenVINO models whose weights stay small in memory: f16 as they were, or int8 with a scale per output channel.

The CPU plugin widens reduced weights block by block inside a matrix product, and nowhere else: those of a convolution
it would widen once for all. So convolutions become matrix products here, of the picture's patches and the weights. All
computing stays in f32. Plugins that know no such products widen all weights: right answers, without the saving.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.plans.openvino_runtime import import_openvino
from engine.request import Weights

_LAST = np.iinfo(np.int64).max
_STATE = "weights"


def reduce_weights(model: Any, weights: Weights) -> Any:
    """The same model with weights reduced, given one whose large weights are f16 constants, each behind a Convert.

    `weights` is HALF (results as before but for rounding) or INT8: symmetric, one f32 scale per output channel, the
    largest weight of a channel at ±127. The model that came in can't be used any more.
    """
    from openvino import opset13 as ops

    for layer, widening in _reducible(model):
        patches = None if _is_linear(layer) else _patches(layer)
        matrix = _matrix_of(widening.input_value(0).get_node().data)
        if weights is Weights.HALF:
            product_weights = _widened(widening, matrix)
        else:
            small, scales = quantised(matrix)
            # a Convert of its own: the mark of the f16 one would have the CPU plugin widen int8 once for all
            product_weights = ops.multiply(ops.convert(ops.constant(small), "f32"), ops.constant(scales))
        if patches is None:
            layer.input(1).replace_source_output(product_weights.output(0))
        else:
            _put_product_in_place(layer, patches, product_weights)
    model.validate_nodes_and_infer_types()
    return _keeping_f16(model) if weights is Weights.HALF else model


def quantised(matrix: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """A matrix [out, in] of any float type as int8 [out, in] and scales f32 [out, 1]: int8 * scale is near the matrix.

    No element is off by more than half a scale; a channel of zeros has the scale 1.
    """
    wide = matrix.astype(np.float32)
    scales = np.abs(wide).max(axis=1, keepdims=True) / np.float32(127)
    scales[scales == 0] = 1
    return np.rint(wide / scales).astype(np.int8), scales


def _reducible(model: Any) -> list[tuple[Any, Any]]:
    """Linear layers and plain convolutions, each with the Convert that widens its weights from an f16 constant."""
    found = []
    for convert in model.get_ordered_ops():
        if convert.get_type_name() != "Convert" or len(uses := convert.output(0).get_target_inputs()) != 1:
            continue
        stored, use = convert.input_value(0).get_node(), next(iter(uses))
        layer = use.get_node()
        is_stored_half = stored.get_type_name() == "Constant" and stored.get_element_type().to_string() == "f16"
        if is_stored_half and use.get_index() == 1 and (_is_linear(layer) or _is_plain_convolution(layer)):
            found.append((layer, convert))
    return found


def _is_linear(layer: Any) -> bool:
    return layer.get_type_name() == "MatMul" and bool(layer.get_attributes()["transpose_b"])


def _is_plain_convolution(layer: Any) -> bool:
    if layer.get_type_name() != "Convolution":
        return False
    attributes = layer.get_attributes()
    return list(attributes["dilations"]) == [1, 1] and attributes["auto_pad"] == "explicit"


def _matrix_of(weights: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The weights as [out, in]; those of a convolution in the order in which `_patches` puts what they meet."""
    return weights if weights.ndim == 2 else weights.transpose(0, 2, 3, 1).reshape(weights.shape[0], -1)


def _put_product_in_place(convolution: Any, patches: Any, weights: Any) -> None:
    from openvino import opset13 as ops

    product = ops.matmul(patches, weights, False, True)
    pictures = ops.transpose(product, _integers(0, 3, 1, 2))
    for use in convolution.output(0).get_target_inputs():
        use.replace_source_output(pictures.output(0))


def _patches(convolution: Any) -> Any:
    """What a kernel sees at each place: of the input [B, C, h, w], padded and strided, [B, h', w', taps * C]."""
    from openvino import opset13 as ops

    attributes = convolution.get_attributes()
    rows, columns = convolution.input(1).get_shape()[2:]
    below, right = attributes["pads_end"]
    above, left = attributes["pads_begin"]
    pixels = ops.transpose(convolution.input_value(0), _integers(0, 2, 3, 1))
    if any((above, left, below, right)):
        start, end = _integers(0, above, left, 0), _integers(0, below, right, 0)
        pixels = ops.pad(pixels, start, end, "constant", ops.constant(np.float32(0)))
    step, axes = _integers(*attributes["strides"]), _integers(1, 2)
    taps = [
        ops.slice(pixels, _integers(row, column), _integers(_to(row, rows), _to(column, columns)), step, axes)
        for row in range(rows)
        for column in range(columns)
    ]
    return ops.concat(taps, -1) if len(taps) > 1 else taps[0]


def _to(tap: int, size: int) -> int:
    """Where a tap's slice ends: so far before the end as the kernel reaches beyond the tap."""
    return tap + 1 - size if tap + 1 < size else _LAST


def _integers(*values: int) -> Any:
    from openvino import opset13 as ops

    return ops.constant(np.array(values, dtype=np.int64))


def _widened(convert: Any, matrix: np.ndarray[Any, Any]) -> Any:
    """The same Convert to f32, of this matrix: it bears the mark that keeps plugins from carrying it out beforehand."""
    from openvino import opset13 as ops

    convert.input(0).replace_source_output(ops.constant(np.ascontiguousarray(matrix)).output(0))
    convert.constructor_validate_and_infer_types()
    return convert


def _keeping_f16(model: Any) -> Any:
    """The CPU plugin leaves f16 weights as they are only in models that have attention and a state, which it takes for
    language models. So this one gets a state: a zero that nothing changes, added to the answer.
    """
    from openvino import opset13 as ops

    openvino = import_openvino()
    results = model.get_results()
    state = ops.read_value(ops.constant(np.float32(0)), _STATE)
    answer = ops.add(results[0].input_value(0), state)
    results[0].input(0).replace_source_output(answer.output(0))
    return openvino.Model(results, [ops.assign(state, _STATE)], model.get_parameters(), model.get_friendly_name())
