"""Statically quantized nodes of XNNPACK delegates, as calls of ops on int8 codes.

Values are int8 tensors in the delegate's own order of dims, (N, H, W, C) for images. The ops round as XNNPACK does:

* layers and products: round(sum * scale) + zero point
* Add and Subtract: fixed point with 20 bits, half up; Convert and LeakyReLU: fixed point with 8 bits, half up
* means and functions of one code: round(number / scale + zero point)

Functions of one code are tables. Nodes that have no op on codes are computed on floats between quantizations.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ..container import DType, XnnNode, XnnType, XnnValue
from ..errors import GraphError
from ..typing import Array
from .graph import Bool, Double, Int, IntList, Null, Value
from .names import (
    DEQUANTIZE,
    INT8_ADD,
    INT8_CONVOLUTION,
    INT8_LINEAR,
    INT8_MAX_POOL,
    INT8_MEAN,
    INT8_MULTIPLY,
    INT8_TABLE,
    PAD,
    QUANTIZE,
)
from .xnnpack_nodes import FLOAT_NODES, Translate, filter_dims, operand, padded_sizes, pads, pair
from .xnnpack_values import LaidOut, Order, UnsupportedNodeError, XnnValues, identity

LOWEST, HIGHEST = -128, 127
SUM_BITS, RATIO_BITS = 20, 8  # of the fixed-point factors
IMAGE = identity(4)
_INPUTS = ("input", "input1", "input2", "input3", "input4", "input5", "query", "key", "value", "scale", "mask")
SAME_SCALE = "expected an input and an output of one scale and zero point, got different ones"
f32 = np.float32


# -- scales ------------------------------------------------------------------------------------------------------------


def is_coded(xv: XnnValues, value_id: int) -> bool:
    return xv.value(value_id).type is XnnType.QINT8


def scale_of(value: XnnValue) -> np.float32:
    """Return the scale of a statically quantized value."""
    if value.quant is None or value.quant.kind != "tensor":
        raise GraphError("a value of type qint8 without a scale")
    scale = np.float32(value.quant.scales[0])
    if not np.isfinite(scale) or scale <= 0:
        raise GraphError(f"a value of type qint8 with the scale {scale}")
    return scale


def _zero_of(value: XnnValue) -> int:
    zero = value.quant.zero_point if value.quant is not None else 0
    if not LOWEST <= zero <= HIGHEST:
        raise GraphError(f"a value of type qint8 with the zero point {zero}")
    return zero


def _coding(xv: XnnValues, value_id: int) -> tuple[np.float32, int]:
    """Return scale and zero point of a value that must be int8 codes."""
    if not is_coded(xv, value_id):
        raise UnsupportedNodeError(f"expected int8 codes, got a value of {xv.value(value_id).type.name.lower()}")
    return scale_of(xv.value(value_id)), _zero_of(xv.value(value_id))


def _limits(value: XnnValue, clamp: tuple[float, float] | None) -> tuple[int, int]:
    """Return the smallest and largest code of a node's output."""
    low, high = float(LOWEST), float(HIGHEST)
    if clamp is not None:
        scale, zero = scale_of(value), _zero_of(value)
        low, high = (float(np.rint(np.clip(f32(end) / scale + f32(zero), LOWEST, HIGHEST))) for end in clamp)
    return int(low), int(high)


def _output(xv: XnnValues, node: XnnNode) -> tuple[np.float32, tuple[Int, Int, Int]]:
    """Return the scale of a node's output, and its zero point and limits as arguments."""
    out = operand(node, "output")
    scale, zero = _coding(xv, out)
    low, high = _limits(xv.value(out), node.clamp)
    return scale, (Int(zero), Int(low), Int(high))


# -- quantization ------------------------------------------------------------------------------------------------------


def _quantized(xv: XnnValues, value: XnnValue, tensor: int, clamp: tuple[float, float] | None = None) -> int:
    """Return the codes of floats."""
    low, high = _limits(value, clamp)
    arguments = (tensor, Double(float(scale_of(value))), Int(_zero_of(value)), Int(low), Int(high), Null())
    return xv.call(QUANTIZE, arguments, DType.INT8, xv.tensor(tensor).dims)


def _dequantized(xv: XnnValues, value: XnnValue, tensor: int, dtype: DType) -> int:
    """Return the numbers of codes."""
    limits = (Int(LOWEST), Int(HIGHEST), Null(), Null())
    arguments = (tensor, Double(float(scale_of(value))), Int(_zero_of(value)), *limits)
    return xv.call(DEQUANTIZE, arguments, dtype, xv.tensor(tensor).dims)


def _convert(xv: XnnValues, node: XnnNode) -> None:
    source, out = operand(node, "input"), operand(node, "output")
    tensor, order = xv.place(source)
    if not is_coded(xv, out):
        xv.put(out, _dequantized(xv, xv.value(source), tensor, xv.dtype(out)), order)
    elif not is_coded(xv, source):
        xv.put(out, _quantized(xv, xv.value(out), tensor, node.clamp), order)
    else:
        _through_table(xv, node, lambda codes, _: _requantized(codes, xv, node))


def _by_floats(xv: XnnValues, node: XnnNode) -> None:
    """Translate a node on codes as the one on floats, between their numbers."""
    out, before = operand(node, "output"), dict(xv.layouts)
    coded = [source for name in _INPUTS if (source := node.ids.get(name)) is not None and is_coded(xv, source)]
    for source in dict.fromkeys(coded):
        tensor, order = xv.place(source)
        xv.layouts[source] = LaidOut(_dequantized(xv, xv.value(source), tensor, DType.FLOAT32), order)
    xv.codes_dtype = DType.FLOAT32
    try:
        FLOAT_NODES[node.type](xv, node)
    finally:
        xv.codes_dtype = DType.INT8
        tensor, order = xv.layouts.pop(out, LaidOut(-1, ()))
        xv.layouts = before
    xv.put(out, _quantized(xv, xv.value(out), tensor, node.clamp) if is_coded(xv, out) else tensor, order)


# -- moves -------------------------------------------------------------------------------------------------------------


def _moved(xv: XnnValues, node: XnnNode) -> None:
    """Translate a node that only moves codes, if they keep their scale."""
    out = operand(node, "output")
    sources = [node.ids[name] for name in _INPUTS if name in node.ids]
    if all(xv.value(source).quant == xv.value(out).quant for source in sources):
        FLOAT_NODES[node.type](xv, node)
    else:
        _by_floats(xv, node)


def _pad(xv: XnnValues, node: XnnNode) -> None:
    source, out = operand(node, "input"), operand(node, "output")
    if xv.value(source).quant != xv.value(out).quant:
        raise UnsupportedNodeError(SAME_SCALE)
    scale, zero = _coding(xv, out)
    code = float(np.rint(np.clip(f32(node.factor) / scale + f32(zero), LOWEST, HIGHEST)))
    tensor, order = xv.ranked(source)
    arguments = (tensor, IntList(padded_sizes(node, order)), Double(code))
    xv.put(out, xv.call(PAD, arguments, DType.INT8, xv.bound(out, order)), order)


# -- functions of one code ---------------------------------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])
FUNCTIONS: dict[str, Callable[[Array], Any]] = {
    "Abs": np.abs,
    "Ceiling": np.ceil,
    "Clamp": lambda x: x,
    "Cos": np.cos,
    "Exp": np.exp,
    "Floor": np.floor,
    "Gelu": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "Hardswish": lambda x: x * (np.clip(x + 3, 0, 6) / 6),
    "Negate": np.negative,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sin": np.sin,
    "Square": np.square,
    "Tanh": np.tanh,
}


def _through_table(xv: XnnValues, node: XnnNode, change: Callable[[Array, Array], Array]) -> None:
    """Define the output of a node by a function of the codes, less their zero point, and of their numbers."""
    source, out = operand(node, "input"), operand(node, "output")
    scale, zero = _coding(xv, source)
    _, (_, low, high) = _output(xv, node)
    codes = np.arange(256).astype(np.uint8).astype(np.int8).astype(np.int64) - zero
    table = np.clip(change(codes, codes.astype(np.float32) * scale), low.value, high.value)
    tensor, order = xv.place(source)
    entries = xv.literal(table, DType.INT8, f"table of {xv.origin}")
    xv.put(out, xv.call(INT8_TABLE, (tensor, entries), DType.INT8, xv.tensor(tensor).dims), order)


# Calls that limit their codes -> which argument is the lowest code; the highest follows it.
_LOWEST_CODE = {
    INT8_ADD: 7,
    INT8_CONVOLUTION: 6,
    INT8_LINEAR: 6,
    INT8_MAX_POOL: 5,
    INT8_MEAN: 4,
    INT8_MULTIPLY: 6,
}


def _clamp(xv: XnnValues, node: XnnNode) -> None:
    """Let the call that computes codes limit them, if no other node reads its result."""
    source, out = operand(node, "input"), operand(node, "output")
    tensor, order = xv.place(source)
    only_reader = (
        sum(source in other.ids.values() for other in xv.xnn.nodes) == 2
    )  # the node that defines it, and this one
    same = xv.value(source).quant == xv.value(out).quant and not xv.value(source).is_output
    number = next((i for i, call in enumerate(xv.calls) if tensor in call.outs), None)
    if not only_reader or not same or number is None or xv.calls[number].name not in _LOWEST_CODE:
        _function(xv, node)
        return
    call = xv.calls[number]
    at = _LOWEST_CODE[call.name]
    first, last = (xv.values[call.args[i]] for i in (at, at + 1))
    assert isinstance(first, Int) and isinstance(last, Int)
    low, high = (min(max(code, first.value), last.value) for code in _limits(xv.value(out), node.clamp))
    limits = (xv.new(Int(low)), xv.new(Int(high)))
    xv.calls[number] = replace(call, args=(*call.args[:at], *limits, *call.args[at + 2 :]))
    xv.put(out, tensor, order)


def _function(xv: XnnValues, node: XnnNode) -> None:
    source, out = operand(node, "input"), operand(node, "output")
    if not is_coded(xv, source) or not is_coded(xv, out):
        _by_floats(xv, node)
        return
    scale, zero = _coding(xv, out)

    def change(_: Array, numbers: Array) -> Array:
        with np.errstate(all="ignore"):
            values = np.asarray(FUNCTIONS[node.type](numbers), np.float32)
            return np.asarray(np.rint(values * (f32(1) / scale) + f32(zero)))

    _through_table(xv, node, change)


def _ratio(over: np.float32) -> int:
    return int(np.rint(f32(over) * f32(1 << RATIO_BITS)))


def _requantized(codes: Array, xv: XnnValues, node: XnnNode, slope: float = 1.0) -> Array:
    """Return codes of the output for codes, less their zero point, in fixed point."""
    scale, _ = _coding(xv, operand(node, "input"))
    out_scale, zero = _coding(xv, operand(node, "output"))
    factor = _ratio(f32(scale * f32(slope)) / out_scale)
    return ((codes * factor + (1 << (RATIO_BITS - 1))) >> RATIO_BITS) + zero


def _leaky_relu(xv: XnnValues, node: XnnNode) -> None:
    def change(codes: Array, _: Array) -> Array:
        below = _requantized(codes, xv, node, node.factor)
        return np.where(codes < 0, below, _requantized(codes, xv, node))

    _through_table(xv, node, change)


# -- two operands ------------------------------------------------------------------------------------------------------


def _operands(xv: XnnValues, node: XnnNode) -> tuple[tuple[int, int], list[int], Order]:
    a, b, out = (operand(node, name) for name in ("input1", "input2", "output"))
    order = xv.common_order((a, b))
    tensors = (xv.broadcast(a, order), xv.broadcast(b, order))
    return tensors, xv.bound(out, order), order


def _add(xv: XnnValues, node: XnnNode) -> None:
    (a_scale, a_zero), (b_scale, b_zero) = (_coding(xv, operand(node, name)) for name in ("input1", "input2"))
    scale, codes = _output(xv, node)
    tensors, bound, order = _operands(xv, node)
    a, b = a_scale / scale, b_scale / scale
    _, exponent = np.frexp(max(a, b))
    shift = SUM_BITS + 1 - int(exponent)
    if not 1 <= shift <= 30:
        raise UnsupportedNodeError(
            f"expected operands with scales up to 2^20 times that of the result, {scale}, and one of at least 2^-10 "
            f"times that, got {a_scale} and {b_scale}"
        )
    factors = [int(np.rint(float(ratio) * 2.0**shift)) for ratio in (a, b)]
    if node.type == "Subtract":
        factors[1] = -factors[1]
    bias = (1 << (shift - 1)) - factors[0] * a_zero - factors[1] * b_zero
    first, second = factors
    arguments = (*tensors, Int(first), Int(second), Int(bias), Int(shift), *codes)
    xv.put(operand(node, "output"), xv.call(INT8_ADD, arguments, DType.INT8, bound), order)


def _multiply(xv: XnnValues, node: XnnNode) -> None:
    (a_scale, a_zero), (b_scale, b_zero) = (_coding(xv, operand(node, name)) for name in ("input1", "input2"))
    scale, codes = _output(xv, node)
    tensors, bound, order = _operands(xv, node)
    arguments = (*tensors, Int(a_zero), Int(b_zero), Double(float(a_scale * b_scale / scale)), *codes)
    xv.put(operand(node, "output"), xv.call(INT8_MULTIPLY, arguments, DType.INT8, bound), order)


# -- layers ------------------------------------------------------------------------------------------------------------


def words_of(rows: Array) -> Array:
    """Return weights (outputs, taps, inputs) as (words, outputs, 4), each tap padded to whole words."""
    outputs, taps, inputs = rows.shape
    filled = np.pad(rows, ((0, 0), (0, 0), (0, -inputs % 4)))
    return filled.reshape(outputs, taps * (filled.shape[2] // 4), 4).transpose(1, 0, 2)


def _layer(xv: XnnValues, node: XnnNode, rows: Array, depthwise: bool = False) -> tuple[int | Value, ...]:
    """Return the arguments of a layer after its input, from weights (outputs, taps, inputs)."""
    weights = operand(node, "filter")
    in_scale, in_zero = _coding(xv, operand(node, "input"))
    scale, codes = _output(xv, node)
    count = rows.shape[0]
    bias = _integer_bias(xv, node, count) - in_zero * rows.sum((1, 2))
    name = f"value {weights} of {xv.origin}"
    arranged = rows[:, :, 0].T if depthwise else words_of(rows)
    return (
        xv.literal(arranged, DType.INT8, f"{name}, codes"),
        xv.literal(in_scale * xv.scales(weights, count) / scale, DType.FLOAT32, f"{name}, scales"),
        xv.literal(_wrapped(bias), DType.INT32, f"{name}, bias"),
        Int(in_zero),
        *codes,
    )


def _wrapped(integers: Array) -> Array:
    """Return integers modulo 2^32, as i32."""
    return integers.astype(np.int64).astype(np.uint32).astype(np.int32)


def _integer_bias(xv: XnnValues, node: XnnNode, count: int) -> Array:
    bias = node.ids.get("bias")
    if bias is None:
        return np.zeros(count, np.int64)
    if not xv.is_constant(bias) or xv.value(bias).type not in (XnnType.QINT32, XnnType.QCINT32):
        raise UnsupportedNodeError(f"expected a bias of constant integers, got {xv.value(bias).type.name.lower()}")
    array = xv.array(bias).astype(np.int64).reshape(-1)
    if len(array) != count:
        raise GraphError(f"{node.type}: expected {count} elements of the bias, got {len(array)}")
    return array


def weight_codes(xv: XnnValues, node: XnnNode) -> Array:
    weights = operand(node, "filter")
    if not xv.is_constant(weights) or xv.value(weights).type not in (XnnType.QINT8, XnnType.QCINT8, XnnType.QCINT4):
        raise UnsupportedNodeError(
            f"expected constant weights of qint8, qcint8 or qcint4, got {xv.value(weights).type.name.lower()}"
        )
    return xv.array(weights).astype(np.int64)


def rows_of(node: XnnNode, weights: Array) -> Array:
    """Return the weights of a convolution as (outputs, taps, inputs of a group)."""
    if node.type == "DepthwiseConv2d":  # (1, kh, kw, outputs)
        return weights.transpose(3, 1, 2, 0).reshape(weights.shape[3], -1, 1)
    return weights.reshape(weights.shape[0], -1, weights.shape[3])


def window_of(node: XnnNode) -> tuple[Value, ...]:
    """Return the last arguments of a convolution over codes."""
    top, right, bottom, left = pads(node)
    return (
        IntList(pair(node, "kernel")),
        IntList(pair(node, "stride")),
        IntList((top, left, bottom, right)),
        IntList(pair(node, "dilation")),
        IntList(pair(node, "adjust")),
        Bool(node.type == "ConvTranspose2d"),
        Int(node.numbers["groups"]),
    )


def _convolution(xv: XnnValues, node: XnnNode) -> None:
    source, out = operand(node, "input"), operand(node, "output")
    filter_dims(xv, node)
    rows, groups = rows_of(node, weight_codes(xv, node)), node.numbers["groups"]
    depthwise = node.type == "DepthwiseConv2d" and rows.shape[0] == groups and groups % 4 == 0
    arguments = (xv.laid(source, IMAGE), *_layer(xv, node, rows, depthwise), *window_of(node))
    xv.put(out, xv.call(INT8_CONVOLUTION, arguments, DType.INT8, xv.bound(out, IMAGE)), IMAGE)


def _fully_connected(xv: XnnValues, node: XnnNode) -> None:
    source, out = operand(node, "input"), operand(node, "output")
    weights = weight_codes(xv, node)
    if weights.ndim != 2 or node.numbers["flags"]:
        raise UnsupportedNodeError(
            f"expected weights (outputs, inputs), got {list(weights.shape)} with flags {node.numbers['flags']}"
        )
    x = xv.plain(source)
    dims = (*xv.tensor(x).dims[:-1], weights.shape[0])
    if xv.rank(out) != len(dims) or xv.tensor(x).dims[-1] != weights.shape[1]:
        raise UnsupportedNodeError(
            f"expected an input (..., {weights.shape[1]}) for weights {list(weights.shape)}, "
            f"got {list(xv.tensor(x).dims)}"
        )
    arguments = (x, *_layer(xv, node, weights[:, None, :]))
    xv.put(out, xv.call(INT8_LINEAR, arguments, DType.INT8, dims), identity(len(dims)))


# -- pools -------------------------------------------------------------------------------------------------------------


def _max_pool(xv: XnnValues, node: XnnNode) -> None:
    source, out = operand(node, "input"), operand(node, "output")
    if xv.value(source).quant != xv.value(out).quant:
        raise UnsupportedNodeError(SAME_SCALE)
    _, (_, low, high) = _output(xv, node)
    top, right, bottom, left = pads(node)
    arguments = (
        xv.laid(source, IMAGE),
        IntList(pair(node, "kernel")),
        IntList(pair(node, "stride")),
        IntList((top, left, bottom, right)),
        IntList(pair(node, "dilation")),
        low,
        high,
    )
    xv.put(out, xv.call(INT8_MAX_POOL, arguments, DType.INT8, xv.bound(out, IMAGE)), IMAGE)


def _global_average(xv: XnnValues, node: XnnNode) -> None:
    source, out = operand(node, "input"), operand(node, "output")
    in_scale, in_zero = _coding(xv, source)
    scale, codes = _output(xv, node)
    arguments = (xv.laid(source, IMAGE), Int(in_zero), Double(float(in_scale / scale)), *codes)
    xv.put(out, xv.call(INT8_MEAN, arguments, DType.INT8, xv.bound(out, IMAGE)), IMAGE)


STATIC_NODES: dict[str, Translate] = {
    **dict.fromkeys(FUNCTIONS, _function),
    **dict.fromkeys(("Add", "Subtract"), _add),
    **dict.fromkeys(("Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5"), _moved),
    **dict.fromkeys(("Conv2d", "DepthwiseConv2d", "ConvTranspose2d"), _convolution),
    **dict.fromkeys(("Copy", "StaticReshape", "StaticSlice", "StaticTranspose"), _moved),
    "Clamp": _clamp,
    "Convert": _convert,
    "FullyConnected": _fully_connected,
    "GlobalAvgPooling2d": _global_average,
    "LeakyReLU": _leaky_relu,
    "MaxPooling2d": _max_pool,
    "Multiply": _multiply,
    "StaticConstantPad": _pad,
}


def translate_codes(xv: XnnValues, node: XnnNode) -> None:
    """Add the calls of a node with statically quantized values."""
    STATIC_NODES.get(node.type, _by_floats)(xv, node)
