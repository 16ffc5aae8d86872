"""Nodes of XNNPACK delegates on values that are quantized at run time, as calls of ops.

Such values stay floats until a layer reads them: rows of a linear layer are rounded by that layer, and images become
codes before a convolution. Statically quantized values are in xnnpack_codes.py.
"""

from __future__ import annotations

import numpy as np

from ..container import DType, XnnNode, XnnType
from ..errors import GraphError
from ..typing import Array
from .graph import Bool, Constant, Double, Int, IntList, Null, String, TensorSpec
from .names import (
    CHOOSE_QPARAMS,
    DYNAMIC_LINEAR_Q4,
    INT8,
    INT8_DYNAMIC_CONVOLUTION,
    INT8_IMAGE_CODES,
    LINEAR_Q4,
    MAX_OF_DIMS,
    MIN_OF_DIMS,
    ROUND_BF16,
)
from .xnnpack_codes import (
    HIGHEST,
    IMAGE,
    LOWEST,
    rows_of,
    translate_codes,
    weight_codes,
    window_of,
    words_of,
)
from .xnnpack_nodes import (
    FLOAT_NODES,
    Translate,
    bias_of,
    filter_dims,
    operand,
    pads,
    pair,
)
from .xnnpack_values import LaidOut, UnsupportedNodeError, XnnValues, identity

MOVES = (  # nodes whose numbers are those of their operands
    *("Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5", "Copy"),
    *("StaticReshape", "StaticSlice", "StaticTranspose"),
)
EPS, MAX_F32 = float(np.finfo(np.float32).eps), float(np.finfo(np.float32).max)
BF16_ROUNDING = np.float32(1.00389105)  # XNNPACK's, before it cuts f32 scales of groups to bf16


def translate(xv: XnnValues, node: XnnNode) -> None:
    """Add the calls of a node, by the types of its values."""
    _translate(xv, node)
    out = operand(node, "output")
    if xv.value(out).type is XnnType.BF16 and node.type not in MOVES:
        tensor, order = xv.layouts[out]
        spec = xv.tensor(tensor)
        xv.layouts[out] = LaidOut(xv.call(ROUND_BF16, (tensor,), spec.dtype, spec.dims), order)


def _translate(xv: XnnValues, node: XnnNode) -> None:
    values = [xv.value(value_id) for value_id in node.ids.values()]
    if any(value.type is XnnType.QDINT8 or value.quantized_on_entry for value in values):
        rule = DYNAMIC_NODES.get(node.type)
        if rule is None:
            raise UnsupportedNodeError(
                f"expected one of {', '.join(DYNAMIC_NODES)} for a value that is quantized at run time, got {node.type}"
            )
        rule(xv, node)
    elif any(value.type is XnnType.QINT8 for value in values):
        translate_codes(xv, node)
    else:
        FLOAT_NODES[node.type](xv, node)


# -- scales chosen at run time -----------------------------------------------------------------------------------------


def _defer(xv: XnnValues, node: XnnNode) -> None:
    """Note which value a Convert quantizes: its readers do it."""
    source, out = operand(node, "input"), operand(node, "output")
    if xv.value(source).type not in (XnnType.FP32, XnnType.FP16, XnnType.BF16) or out in xv.dynamic:
        raise UnsupportedNodeError(
            f"expected fp32, fp16 or bf16 to quantize at run time, got {xv.value(source).type.name.lower()}"
        )
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
        raise UnsupportedNodeError(f"expected a scale for each row, got one for each {inner_dims} dims")
    out = operand(node, "output")
    dims = xv.value(operand(node, "filter")).dims
    if len(dims) != 2 or node.numbers["flags"] or xv.rank(out) != xv.rank(source):
        raise UnsupportedNodeError(
            f"expected weights (outputs, inputs), got {list(dims)} with flags {node.numbers['flags']}"
        )
    total = _linear_of_rows(xv, node, xv.plain(source), dims[0], dims[1])
    total = xv.clamped(total, node.clamp)
    xv.put(out, xv.converted(total, xv.dtype(out)), identity(xv.rank(out)))


def _linear_of_rows(xv: XnnValues, node: XnnNode, x: int, outputs: int, inputs: int) -> int:
    """Return a layer of the rows of `x`, each quantized by its own scale."""
    weights = operand(node, "filter")
    spec, value = xv.tensor(x), xv.value(weights)
    if not xv.is_constant(weights) or not spec.dims or spec.dims[-1] != inputs:
        raise UnsupportedNodeError(
            f"expected constant weights and an input (..., {inputs}), got {list(value.dims)} and {list(spec.dims)}"
        )
    bias = bias_of(xv, node, DType.FLOAT32)
    scales, zeros = _row_qparams(xv, x)
    dims = (*spec.dims[:-1], outputs)
    if value.type in (XnnType.QBINT4, XnnType.QCINT4):
        codes, factors, group = _packed_weight(xv, weights, outputs, inputs)
        arguments = (x, scales, zeros, codes, Null(), factors, Int(group), bias)
        return xv.call(DYNAMIC_LINEAR_Q4, arguments, spec.dtype, dims)
    if value.type not in (XnnType.QCINT8, XnnType.QINT8) or (value.quant is not None and value.quant.zero_point):
        raise UnsupportedNodeError(
            f"expected symmetric weights of qint8, qcint8, qcint4 or qbint4, got {value.type.name.lower()}"
        )
    span = xv.span(value.constant, outputs * inputs, f"value {weights}")
    name = xv.xnn.constants[value.constant].key or f"delegate {xv.origin.delegate}, value {weights}"
    codes = xv.new(TensorSpec(DType.INT8, (outputs, inputs), DType.INT8, constant=Constant(span, DType.INT8, name)))
    factors = xv.literal(xv.scales(weights, outputs), DType.FLOAT32, f"{name} scales")
    result = xv.new(TensorSpec(spec.dtype, dims, spec.dtype))
    lists = (xv.listed([codes]), xv.listed([factors]))
    rest = (Int(inputs), IntList((outputs,)), bias, String(INT8), *[Null()] * 8)
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
        scales, group = xv.scales(weights, outputs)[:, None], inputs
    elif quant.kind == "group" and quant.group_size > 0 and inputs % quant.group_size == 0:
        group = quant.group_size
        scales = _group_scales(xv, weights, outputs, inputs // group)
    else:
        raise UnsupportedNodeError(f"expected groups that divide {inputs} inputs, got groups of {quant.group_size}")
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
    rows = rows_of(node, weight_codes(xv, node))
    scales = xv.scales(weights, len(rows))
    name = f"value {weights} of {xv.origin}"
    bias = bias_of(xv, node, DType.FLOAT32)
    low, high = (float(np.clip(end, -MAX_F32, MAX_F32)) for end in node.clamp or (-np.inf, np.inf))
    arguments = (
        *_image_codes(xv, source),
        xv.literal(words_of(rows), DType.INT8, f"{name}, codes"),
        xv.literal(scales, DType.FLOAT32, f"{name}, scales"),
        xv.literal(np.zeros(len(rows)), DType.FLOAT32, f"{name}, bias") if isinstance(bias, Null) else bias,
        xv.literal(rows.sum((1, 2)), DType.INT32, f"{name}, sums"),
        Double(low),
        Double(high),
        *window_of(node),
    )
    total = xv.call(INT8_DYNAMIC_CONVOLUTION, arguments, DType.FLOAT32, xv.bound(out, IMAGE))
    xv.put(out, xv.converted(total, xv.dtype(out)), IMAGE)


def _is_pointwise(node: XnnNode) -> bool:
    single = pair(node, "kernel") == pair(node, "stride") == (1, 1) and node.numbers["groups"] == 1
    return node.type == "Conv2d" and single and not any(pads(node))


def _image_codes(xv: XnnValues, source: int) -> tuple[int, int, int]:
    """Return images (N, H, W, C) as codes, each by the range of its own numbers, and the ends of the ranges."""
    tensor, order = xv.ranked(source)
    if order[0] != 0:
        tensor, order = xv.plain(source), IMAGE
    image = xv.converted(tensor, DType.FLOAT32)
    spec = xv.tensor(image)
    single, axes = (spec.dims[0], 1, 1, 1), IntList((1, 2, 3))
    low, high = (xv.call(name, (image, axes, Bool(True)), DType.FLOAT32, single) for name in (MIN_OF_DIMS, MAX_OF_DIMS))
    bound = [spec.dims[d] for d in order]
    return xv.call(INT8_IMAGE_CODES, (image, low, high, IntList(order)), DType.INT8, bound), low, high


DYNAMIC_NODES: dict[str, Translate] = {
    **dict.fromkeys(("Conv2d", "DepthwiseConv2d", "ConvTranspose2d"), _dynamic_convolution),
    "Convert": _defer,
    "FullyConnected": _dynamic_linear,
}
