"""Nodes of XNNPACK delegates on codes, as calls of ops.

Statically quantized values are held as f32 integers, code less zero point: sums of their products are exact below
2^24, and scaling, rounding and limits are elementwise calls that fusion joins with the product before them. Rounding is
to even, as in XNNPACK.

Values quantized at run time stay floats until a layer reads them: rows of a linear layer are rounded by that layer, and
images of a convolution by elementwise calls.
"""

from __future__ import annotations

import numpy as np

from ..container import DType, XnnNode, XnnType, XnnValue
from ..errors import GraphError
from .graph import Bool, Constant, Double, Int, IntList, Null, String, TensorSpec, Value
from .names import (
    ADD,
    CHOOSE_QPARAMS,
    CLAMP,
    DEQUANTIZE,
    DYNAMIC_LINEAR_Q4,
    LINEAR_Q4,
    MAX_OF_DIMS,
    MIN_OF_DIMS,
    MUL,
    PLAIN_LINEAR,
    QUANTIZE,
    ROUND,
    SUB,
    XNN_BINARY,
    XNN_UNARY,
)
from .xnnpack_nodes import (
    FLOAT_NODES,
    Translate,
    bias_of,
    convolved,
    filter_dims,
    laid_out_filter,
    operand,
    pads,
    pair,
)
from .xnnpack_values import NHWC, Array, Laid, Order, UnsupportedNodeError, XnnValues, identity

LOWEST, HIGHEST = -128, 127
EPS = float(np.finfo(np.float32).eps)
BF16_ROUNDING = np.float32(1.00389105)  # XNNPACK's, before it cuts f32 scales of groups to bf16
_INPUTS = ("input", "input1", "input2", "input3", "input4", "input5", "query", "key", "value", "scale", "mask")
_MOVES = ("Copy", "StaticReshape", "StaticSlice", "StaticTranspose")


def translate(xv: XnnValues, node: XnnNode) -> None:
    """Add the calls of a node, by the types of its values."""
    values = [xv.value(value_id) for value_id in node.ids.values()]
    if any(value.type is XnnType.QDINT8 or value.quantized_on_entry for value in values):
        rule = DYNAMIC_NODES.get(node.type)
        if rule is None:
            raise UnsupportedNodeError("a value that is quantized at run time")
        rule(xv, node)
    elif any(value.type is XnnType.QINT8 for value in values):
        STATIC_NODES.get(node.type, _by_floats)(xv, node)
    else:
        FLOAT_NODES[node.type](xv, node)


# -- one scale per tensor ----------------------------------------------------------------------------------------------


def scale_of(value: XnnValue) -> np.float32:
    """Return the scale of a statically quantized value."""
    if value.quant is None or value.quant.kind != "tensor":
        raise GraphError("a value of type qint8 without a scale")
    scale = np.float32(value.quant.scales[0])
    if not np.isfinite(scale) or scale <= 0:
        raise GraphError(f"a value of type qint8 with the scale {scale}")
    return scale


def _limits(value: XnnValue, clamp: tuple[float, float] | None) -> tuple[float, float]:
    """Return the smallest and largest code less the zero point."""
    assert value.quant is not None
    zero, scale = value.quant.zero_point, scale_of(value)
    if not LOWEST <= zero <= HIGHEST:
        raise GraphError(f"a value of type qint8 with the zero point {zero}")
    low, high = float(LOWEST), float(HIGHEST)
    if clamp is not None:
        ends = [np.rint(np.clip(np.float32(end) / scale + zero, LOWEST, HIGHEST)) for end in clamp]
        low, high = (float(end) for end in ends)
    return low - zero, high - zero


def _scaled(xv: XnnValues, tensor: int, factor: Array | np.float32) -> int:
    """Return a tensor times a number, or times a constant that broadcasts."""
    spec = xv.tensor(tensor)
    by: int | Value
    if factor.ndim:
        by = xv.literal(np.asarray(factor), DType.FLOAT32, f"scales of {xv.origin}")
    else:
        by = Double(float(factor))
    return xv.call(MUL, (tensor, by), spec.dtype, spec.dims)


def _finish(xv: XnnValues, node: XnnNode, tensor: int, order: Order, unit: Array | np.float32) -> None:
    """Define the output of a node by numbers in units of `unit`, a scalar or one for each channel."""
    out = operand(node, "output")
    value = xv.value(out)
    if value.type is not XnnType.QINT8:
        real = xv.clamped(_scaled(xv, tensor, unit), node.clamp)
        xv.put(out, xv.converted(real, xv.dtype(out)), order)
        return
    scale = scale_of(value)
    factor = np.asarray(unit / scale, np.float32)
    spec = xv.tensor(tensor)
    if factor.ndim or factor != 1:
        tensor = xv.call(ROUND, (_scaled(xv, tensor, factor),), spec.dtype, spec.dims)
    low, high = _limits(value, node.clamp)
    xv.put(out, xv.call(CLAMP, (tensor, Double(low), Double(high)), spec.dtype, spec.dims), order)


def read_codes(xv: XnnValues, value_id: int, tensor: int) -> int:
    """Return the codes of an input as f32 integers, less the zero point."""
    value, spec = xv.value(value_id), xv.tensor(tensor)
    assert value.quant is not None
    limits = (Int(LOWEST), Int(HIGHEST), Null(), Null())
    arguments = (tensor, Double(1.0), Int(value.quant.zero_point), *limits)
    return xv.call(DEQUANTIZE, arguments, DType.FLOAT32, spec.dims)


def write_codes(xv: XnnValues, value_id: int, tensor: int) -> int:
    """Return the same as codes of an output."""
    value, spec = xv.value(value_id), xv.tensor(tensor)
    assert value.quant is not None
    arguments = (tensor, Double(1.0), Int(value.quant.zero_point), Int(LOWEST), Int(HIGHEST), Null())
    return xv.call(QUANTIZE, arguments, DType.INT8, spec.dims)


def _by_floats(xv: XnnValues, node: XnnNode) -> None:
    """Translate a node on codes as the one on floats, between their numbers."""
    out, before = operand(node, "output"), dict(xv.places)
    for name in _INPUTS:
        source = node.ids.get(name)
        if source is not None and xv.value(source).type is XnnType.QINT8:
            tensor, order = xv.place(source)
            xv.places[source] = Laid(_scaled(xv, tensor, scale_of(xv.value(source))), order)
    FLOAT_NODES[node.type](xv, node)
    tensor, order = xv.places.pop(out)
    for name in _INPUTS:
        if (source := node.ids.get(name)) in before:
            xv.places[source] = before[source]
        elif source is not None:
            xv.places.pop(source, None)
    if xv.value(out).type is not XnnType.QINT8:
        xv.put(out, tensor, order)
        return
    _finish(xv, node, tensor, order, np.float32(1))


def _convert(xv: XnnValues, node: XnnNode) -> None:
    source = operand(node, "input")
    tensor, order = xv.place(source)
    unit = scale_of(xv.value(source)) if xv.value(source).type is XnnType.QINT8 else np.float32(1)
    _finish(xv, node, xv.converted(tensor, DType.FLOAT32), order, unit)


def _moved(xv: XnnValues, node: XnnNode) -> None:
    """Translate a node that only moves codes, which keep their scale."""
    source, out = operand(node, "input"), operand(node, "output")
    if xv.value(source).quant != xv.value(out).quant:
        raise UnsupportedNodeError("values of different scales")
    FLOAT_NODES[node.type](xv, node)


def _multiply(xv: XnnValues, node: XnnNode) -> None:
    a, b, out = (operand(node, name) for name in ("input1", "input2", "output"))
    if any(xv.value(value_id).type is not XnnType.QINT8 for value_id in (a, b)):
        raise UnsupportedNodeError("a product of codes and floats")
    order = xv.common_order((a, b))
    x, y = (xv.broadcast(value_id, order) for value_id in (a, b))
    product = xv.call(MUL, (x, y), DType.FLOAT32, xv.bound(out, order))
    _finish(xv, node, product, order, np.float32(scale_of(xv.value(a)) * scale_of(xv.value(b))))


def weight_scales(xv: XnnValues, value_id: int, count: int) -> Array:
    """Return the scales of a weight, one for each of `count` outputs."""
    value = xv.value(value_id)
    quant = value.quant
    if quant is None or quant.kind not in ("tensor", "channel"):
        raise UnsupportedNodeError(f"weights of type {value.type.name.lower()} without scales of channels")
    if quant.scale_data:
        scales = np.frombuffer(xv.data(quant.scale_data, 4 * count, f"scales of value {value_id}"), np.float32)
    else:
        scales = np.array(quant.scales, np.float32)
    if quant.kind == "tensor":
        scales = np.repeat(scales[:1], count)
    if len(scales) != count:
        raise GraphError(f"value {value_id}: expected {count} scales, got {len(scales)}")
    return scales


def _outputs(node: XnnNode, dims: tuple[int, ...]) -> int:
    return dims[3] if node.type == "DepthwiseConv2d" else dims[0]


def _integer_bias(xv: XnnValues, node: XnnNode) -> int | Value:
    bias = node.ids.get("bias")
    if bias is not None and not xv.is_constant(bias):
        raise UnsupportedNodeError("a bias that is not constant")
    return bias_of(xv, node, DType.FLOAT32)


def _convolution(xv: XnnValues, node: XnnNode) -> None:
    source, weights = operand(node, "input"), operand(node, "filter")
    dims = filter_dims(xv, node)
    weight = xv.constant(weights, f"codes for {node.type}", lambda a: laid_out_filter(node, a), DType.FLOAT32)
    total = convolved(xv, node, xv.laid(source, NHWC), weight, _integer_bias(xv, node))
    scales = weight_scales(xv, weights, _outputs(node, dims)).reshape(-1, 1, 1)
    _finish(xv, node, total, NHWC, scale_of(xv.value(source)) * scales)


def _fully_connected(xv: XnnValues, node: XnnNode) -> None:
    source, weights, out = (operand(node, name) for name in ("input", "filter", "output"))
    if not xv.is_constant(weights) or xv.rank(weights) != 2 or node.numbers["flags"]:
        raise UnsupportedNodeError("weights that are not a constant matrix")
    weight = xv.constant(weights, "codes", lambda a: a, DType.FLOAT32)
    x, count = xv.plain(source), xv.value(weights).dims[0]
    dims = (*xv.tensor(x).dims[:-1], count)
    if xv.rank(out) != len(dims):
        raise UnsupportedNodeError("a result of another rank")
    total = xv.call(PLAIN_LINEAR, (x, weight, _integer_bias(xv, node)), DType.FLOAT32, dims)
    _finish(xv, node, total, identity(len(dims)), scale_of(xv.value(source)) * weight_scales(xv, weights, count))


STATIC_NODES: dict[str, Translate] = {
    **dict.fromkeys(_MOVES, _moved),
    **dict.fromkeys(("Conv2d", "DepthwiseConv2d", "ConvTranspose2d"), _convolution),
    "Convert": _convert,
    "FullyConnected": _fully_connected,
    "Multiply": _multiply,
}


# -- scales chosen at run time -----------------------------------------------------------------------------------------


def _defer(xv: XnnValues, node: XnnNode) -> None:
    """Note which value a Convert quantizes: its readers do it."""
    source, out = operand(node, "input"), operand(node, "output")
    if xv.value(source).type not in (XnnType.FP32, XnnType.FP16) or out in xv.dynamic:
        raise UnsupportedNodeError(f"a value of type {xv.value(source).type.name.lower()}")
    xv.dynamic[out] = source


def _source(xv: XnnValues, node: XnnNode) -> tuple[int, int]:
    """Return the value whose numbers a layer reads quantized, and how many of its last dims share a scale."""
    value_id = operand(node, "input")
    value = xv.value(value_id)
    if value.quantized_on_entry:
        return value_id, 1
    if value_id not in xv.dynamic:
        raise GraphError(f"{node.type}: value {value_id} is read before it is quantized")
    return xv.dynamic[value_id], value.quant.inner_dims if value.quant is not None else 0


def _dynamic_linear(xv: XnnValues, node: XnnNode) -> None:
    source, inner_dims = _source(xv, node)
    if inner_dims != 1:
        raise UnsupportedNodeError(f"{inner_dims} dims that share a scale")
    out = operand(node, "output")
    dims = xv.value(operand(node, "filter")).dims
    if len(dims) != 2 or node.numbers["flags"] or xv.rank(out) != xv.rank(source):
        raise UnsupportedNodeError("weights that are not a matrix of rows")
    total = _linear_of_rows(xv, node, xv.plain(source), dims[0], dims[1])
    total = xv.clamped(total, node.clamp)
    xv.put(out, xv.converted(total, xv.dtype(out)), identity(xv.rank(out)))


def _linear_of_rows(xv: XnnValues, node: XnnNode, x: int, outputs: int, inputs: int) -> int:
    """Return a layer of the rows of `x`, each quantized by its own scale."""
    weights = operand(node, "filter")
    spec, value = xv.tensor(x), xv.value(weights)
    if not xv.is_constant(weights) or not spec.dims or spec.dims[-1] != inputs:
        raise UnsupportedNodeError(f"weights {list(value.dims)} for an input {list(spec.dims)}")
    bias = bias_of(xv, node, DType.FLOAT32)
    scales, zeros = _row_qparams(xv, x)
    dims = (*spec.dims[:-1], outputs)
    if value.type in (XnnType.QBINT4, XnnType.QCINT4):
        codes, factors, group = _packed_weight(xv, weights, outputs, inputs)
        arguments = (x, scales, zeros, codes, Null(), factors, Int(group), bias)
        return xv.call(DYNAMIC_LINEAR_Q4, arguments, spec.dtype, dims)
    if value.type not in (XnnType.QCINT8, XnnType.QINT8) or (value.quant is not None and value.quant.zero_point):
        raise UnsupportedNodeError(f"weights of type {value.type.name.lower()}")
    span = xv.span(value.constant, outputs * inputs, f"value {weights}")
    name = xv.xnn.constants[value.constant].key or f"delegate {xv.origin.delegate}, value {weights}"
    codes = xv.new(TensorSpec(DType.INT8, (outputs, inputs), DType.INT8, constant=Constant(span, DType.INT8, name)))
    factors = xv.literal(weight_scales(xv, weights, outputs), DType.FLOAT32, f"{name} scales")
    result = xv.new(TensorSpec(spec.dtype, dims, spec.dtype))
    lists = (xv.listed([codes]), xv.listed([factors]))
    rest = (Int(inputs), IntList((outputs,)), bias, Null(), Int(8), Null(), Null())
    xv.call_into(LINEAR_Q4, (x, scales, zeros, *lists, *rest), (result,))
    return result


def _row_qparams(xv: XnnValues, x: int) -> tuple[int, int]:
    """Return scale and zero point of each row of `x`."""
    spec = xv.tensor(x)
    dims = (*spec.dims[:-1], 1)
    scales, zeros = (xv.new(TensorSpec(dtype, dims, dtype)) for dtype in (DType.FLOAT32, DType.INT32))
    block = IntList((*(1 for _ in spec.dims[:-1]), spec.dims[-1]))
    limits = (Int(LOWEST), Int(HIGHEST))
    arguments = (x, String("ASYMMETRIC"), block, Null(), *limits, Double(EPS), Null(), Null(), Bool(True))
    xv.call_into(CHOOSE_QPARAMS, arguments, (scales, zeros))
    return scales, zeros


def _packed_weight(xv: XnnValues, weights: int, outputs: int, inputs: int) -> tuple[int, int, int]:
    """Return the 4-bit codes of a weight as the file has them, its scales (groups, outputs), and the group size."""
    value = xv.value(weights)
    quant = value.quant
    row = -(-inputs // 2)
    span = xv.span(value.constant, outputs * row, f"value {weights}")
    name = xv.xnn.constants[value.constant].key or f"delegate {xv.origin.delegate}, value {weights}"
    spec = TensorSpec(DType.UINT8, (outputs, row), DType.UINT8, constant=Constant(span, DType.UINT8, name))
    if quant is None or quant.kind == "channel":
        scales, group = weight_scales(xv, weights, outputs)[:, None], inputs
    elif quant.kind == "group" and quant.group_size > 0 and inputs % quant.group_size == 0:
        group = quant.group_size
        scales = _group_scales(xv, weights, outputs, inputs // group)
    else:
        raise UnsupportedNodeError(f"4-bit weights in groups of {quant.group_size} of {inputs}")
    return xv.new(spec), xv.literal(scales.T, DType.FLOAT32, f"{name} scales"), group


def _group_scales(xv: XnnValues, weights: int, outputs: int, groups: int) -> Array:
    """Return the scales (outputs, groups), which have the precision of bf16."""
    quant = xv.value(weights).quant
    assert quant is not None
    if quant.scale_data:
        data = xv.data(quant.scale_data, 2 * outputs * groups, f"scales of value {weights}")
        return DType.BFLOAT16.from_bytes(data).reshape(outputs, groups)
    if len(quant.scales) != outputs * groups:
        raise GraphError(f"value {weights}: expected {outputs * groups} scales, got {len(quant.scales)}")
    bits = (np.array(quant.scales, np.float32) * BF16_ROUNDING).view(np.uint32) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).reshape(outputs, groups)


def _dynamic_convolution(xv: XnnValues, node: XnnNode) -> None:
    source, _ = _source(xv, node)
    weights, out = operand(node, "filter"), operand(node, "output")
    dims = filter_dims(xv, node)
    if _is_pointwise(node):  # quantized for each pixel, whatever the file says
        total = _linear_of_rows(xv, node, xv.plain(source), dims[0], dims[3])
        xv.put(out, xv.converted(xv.clamped(total, node.clamp), xv.dtype(out)), identity(4))
        return
    count = _outputs(node, dims)
    scales = weight_scales(xv, weights, count)

    def real(array: Array) -> Array:
        laid = laid_out_filter(node, array)
        if node.type != "ConvTranspose2d":
            return laid * scales.reshape(-1, 1, 1, 1)
        groups = node.numbers["groups"]
        by_group = scales.reshape(groups, 1, count // groups, 1, 1)
        return (laid.reshape(groups, -1, *laid.shape[1:]) * by_group).reshape(laid.shape)

    weight = xv.constant(weights, f"for {node.type}", real, DType.FLOAT32)
    image = _rounded_image(xv, xv.converted(xv.laid(source, NHWC), DType.FLOAT32))
    total = convolved(xv, node, image, weight, bias_of(xv, node, DType.FLOAT32), node.clamp)
    xv.put(out, xv.converted(total, xv.dtype(out)), NHWC)


def _is_pointwise(node: XnnNode) -> bool:
    single = pair(node, "kernel") == pair(node, "stride") == (1, 1) and node.numbers["groups"] == 1
    return node.type == "Conv2d" and single and not any(pads(node))


def _rounded_image(xv: XnnValues, image: int) -> int:
    """Return images rounded to int8 and back, each by the range of its own numbers."""
    spec = xv.tensor(image)
    single = (spec.dims[0], 1, 1, 1)

    def one(name: str, *arguments: int | Value) -> int:
        return xv.call(name, arguments, DType.FLOAT32, single)

    def each(name: str, *arguments: int | Value) -> int:
        return xv.call(name, arguments, DType.FLOAT32, spec.dims)

    axes = IntList((1, 2, 3))
    low = one(CLAMP, one(MIN_OF_DIMS, image, axes, Bool(True)), Null(), Double(0.0))
    high = one(CLAMP, one(MAX_OF_DIMS, image, axes, Bool(True)), Double(0.0), Null())
    span = one(CLAMP, one(SUB, high, low, Int(1)), Double(float(np.finfo(np.float32).tiny)), Null())
    rate = one(XNN_BINARY["Div"], xv.literal(np.full((1,), 255.0), DType.FLOAT32, "255"), span)
    # Either end gives the zero point; they differ by a rounding.
    zero = one(ROUND, one(SUB, one(XNN_UNARY["Negate"], one(MUL, low, rate)), Double(128.0), Int(1)))
    zero = one(CLAMP, zero, Double(-128.0), Double(127.0))
    codes = each(ADD, each(ROUND, each(MUL, image, rate)), zero, Int(1))
    codes = each(CLAMP, codes, Double(-128.0), Double(127.0))
    return each(XNN_BINARY["Div"], each(SUB, codes, zero, Int(1)), rate)


DYNAMIC_NODES: dict[str, Translate] = {
    **dict.fromkeys(("Conv2d", "DepthwiseConv2d", "ConvTranspose2d"), _dynamic_convolution),
    "Convert": _defer,
    "FullyConnected": _dynamic_linear,
}
