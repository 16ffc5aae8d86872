"""Nodes of XNNPACK delegates on floats, as calls of ops.

Dims, axes and paddings of a node are in the order of its values. A node computes on the tensors of its operands in
whatever order they have, with its axes mapped, or asks for (N, C, H, W).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ..container import DType, XnnNode
from ..errors import GraphError
from ..typing import Array
from .graph import Bool, Double, Int, IntList, Null, String, TensorSpec, Value, numel
from .names import (
    ADD,
    AVG_POOL,
    BMM,
    CAT,
    CONV_WITH_CLAMP,
    ELU,
    EXPAND,
    FULL_LIKE,
    GELU,
    LEAKY_RELU,
    MAX_ALONG_DIM,
    MAX_POOL,
    MEAN,
    MM,
    MUL,
    PAD,
    PLAIN_LINEAR,
    RESIZE,
    SCALED,
    SLICE,
    SOFTMAX,
    XNN_BINARY,
    XNN_UNARY,
)
from .xnnpack_values import NHWC, UnsupportedNodeError, XnnValues, identity

TRANSPOSE_WEIGHTS, ALIGN_CORNERS = 1, 8  # flags
Translate = Callable[[XnnValues, XnnNode], None]


def operand(node: XnnNode, name: str) -> int:
    """Return the id of a value that a node must have."""
    if name not in node.ids:
        raise GraphError(f"{node.type}: expected a value as {name}, got none")
    return node.ids[name]


def _finish(xv: XnnValues, node: XnnNode, tensor: int, order: tuple[int, ...]) -> None:
    """Define the output of a node, limited and in the output's dtype."""
    out = operand(node, "output")
    xv.put(out, xv.converted(xv.clamped(tensor, node.clamp), xv.dtype(out)), order)


def _unary(name: str, *literals: Value) -> Translate:
    def translate(xv: XnnValues, node: XnnNode) -> None:
        source, order = xv.place(operand(node, "input"))
        spec = xv.tensor(source)
        _finish(xv, node, xv.call(name, (source, *literals), spec.dtype, spec.dims), order)

    return translate


def _with_factor(name: str, *further: Value) -> Translate:
    """Return the translation of a unary node with a number."""

    def translate(xv: XnnValues, node: XnnNode) -> None:
        _unary(name, Double(node.factor), *further)(xv, node)

    return translate


def _binary(xv: XnnValues, node: XnnNode) -> None:
    a, b, out = (operand(node, name) for name in ("input1", "input2", "output"))
    order = xv.common_order((a, b))
    x, y = (xv.broadcast(value_id, order) for value_id in (a, b))
    name = XNN_BINARY[node.type]
    factor = (Int(1),) if name in SCALED else ()
    _finish(xv, node, xv.call(name, (x, y, *factor), xv.dtype(out), xv.bound(out, order)), order)


def _square(xv: XnnValues, node: XnnNode) -> None:
    source, order = xv.place(operand(node, "input"))
    spec = xv.tensor(source)
    _finish(xv, node, xv.call(MUL, (source, source), spec.dtype, spec.dims), order)


def _same(xv: XnnValues, node: XnnNode) -> None:
    """Translate Copy, Clamp and Convert between floats."""
    source, order = xv.place(operand(node, "input"))
    _finish(xv, node, source, order)


def _prelu(xv: XnnValues, node: XnnNode) -> None:
    x, order = xv.ranked(operand(node, "input1"))
    slope, spec = xv.broadcast(operand(node, "input2"), order), xv.tensor(x)
    positive = xv.clamped(x, (0.0, np.inf))
    negative = xv.clamped(x, (-np.inf, 0.0))
    scaled = xv.call(MUL, (negative, slope), spec.dtype, spec.dims)
    _finish(xv, node, xv.call(ADD, (positive, scaled, Int(1)), spec.dtype, spec.dims), order)


def _softmax(xv: XnnValues, node: XnnNode) -> None:
    source, order = xv.ranked(operand(node, "input"))
    spec = xv.tensor(source)
    _finish(xv, node, xv.call(SOFTMAX, (source, Int(order[-1]), Bool(False)), spec.dtype, spec.dims), order)


# -- movement ----------------------------------------------------------------------------------------------------------


def _transpose(xv: XnnValues, node: XnnNode) -> None:
    source, perm = operand(node, "input"), node.lists["perm"]
    rank = xv.rank(source)
    if sorted(perm) != list(range(rank)):
        raise GraphError(f"StaticTranspose: expected a permutation of {rank} dims, got {list(perm)}")
    tensor, order = xv.ranked(source)
    xv.put(operand(node, "output"), tensor, tuple(order[d] for d in perm))


def _reshape(xv: XnnValues, node: XnnNode) -> None:
    out, shape = operand(node, "output"), node.lists["shape"]
    if shape.count(0) > 1 or len(shape) != xv.rank(out):
        raise GraphError(f"StaticReshape: expected {xv.rank(out)} sizes and at most one 0, got {list(shape)}")
    size = tuple(dim or -1 for dim in shape)
    bound = xv.value(out).dims
    xv.put(out, xv.viewed(xv.plain(operand(node, "input")), size, bound), identity(len(size)))


def _slice(xv: XnnValues, node: XnnNode) -> None:
    source, out = operand(node, "input"), operand(node, "output")
    offsets, sizes = node.lists["offsets"], node.lists["sizes"]
    tensor, order = xv.ranked(source)
    if not len(offsets) == len(sizes) == len(order) == xv.rank(source):
        raise GraphError(f"StaticSlice: expected {xv.rank(source)} offsets and sizes, got {offsets} and {sizes}")
    for dim, (offset, size) in enumerate(zip(offsets, sizes, strict=True)):
        length = size or xv.tensor(tensor).dims[order[dim]] - offset  # 0 is all that remains
        tensor = _narrowed(xv, tensor, order[dim], offset, length)
    xv.put(out, tensor, order)


def _narrowed(xv: XnnValues, tensor: int, axis: int, offset: int, length: int) -> int:
    """Return a part of a tensor along one axis; the tensor itself if that is all of it."""
    spec = xv.tensor(tensor)
    if (offset, length) == (0, spec.dims[axis]):
        return tensor
    bound = [length if d == axis else n for d, n in enumerate(spec.dims)]
    return xv.call(SLICE, (tensor, Int(axis), Int(offset), Int(offset + length), Int(1)), spec.dtype, bound)


def _concatenate(xv: XnnValues, node: XnnNode) -> None:
    sources = [node.ids[name] for name in ("input1", "input2", "input3", "input4", "input5") if name in node.ids]
    out, axis = operand(node, "output"), node.numbers["axis"]
    order = xv.common_order(sources)
    if axis >= len(order):
        raise GraphError(f"{node.type}: axis {axis} of values with {len(order)} dims")
    parts = xv.listed([xv.laid(value_id, order) for value_id in sources])
    xv.put(out, xv.call(CAT, (parts, Int(order[axis])), xv.dtype(out), xv.bound(out, order)), order)


def _pad(xv: XnnValues, node: XnnNode) -> None:
    tensor, order = xv.ranked(operand(node, "input"))
    out = operand(node, "output")
    arguments = (tensor, IntList(padded_sizes(node, order)), Double(node.factor))
    xv.put(out, xv.call(PAD, arguments, xv.dtype(out), xv.bound(out, order)), order)


def padded_sizes(node: XnnNode, order: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes that a node adds before and after each dim of a tensor, the last dim first."""
    pre, post = node.lists["pre"], node.lists["post"]
    if not len(pre) == len(post) == len(order):
        raise GraphError(f"StaticConstantPad: expected {len(order)} sizes, got {list(pre)} and {list(post)}")
    dims = [order.index(axis) for axis in reversed(range(len(order)))]
    return tuple(size for dim in dims for size in (pre[dim], post[dim]))


# -- products ----------------------------------------------------------------------------------------------------------


def _fully_connected(xv: XnnValues, node: XnnNode) -> None:
    source, weights, out = (operand(node, name) for name in ("input", "filter", "output"))
    dtype, flags = xv.dtype(source), node.numbers["flags"]
    if xv.rank(weights) != 2:
        raise GraphError(f"FullyConnected: expected weights with 2 dims, got {xv.rank(weights)}")
    x = xv.plain(source)
    if xv.is_constant(weights):
        turned = bool(flags & TRANSPOSE_WEIGHTS)
        weight = xv.constant(weights, "turned" if turned else "", lambda a: a.T if turned else a, dtype)
    else:
        weight = xv.converted(xv.laid(weights, (1, 0) if flags & TRANSPOSE_WEIGHTS else (0, 1)), dtype)
    spec = xv.tensor(x)
    columns = xv.tensor(weight).dims[0]
    total = xv.call(PLAIN_LINEAR, (x, weight, bias_of(xv, node, dtype)), dtype, (*spec.dims[:-1], columns))
    if xv.rank(out) != len(spec.dims):
        total = xv.viewed(total, (-1, columns), xv.value(out).dims) if xv.rank(out) == 2 else total
    _finish(xv, node, total, identity(xv.rank(out)))


def bias_of(xv: XnnValues, node: XnnNode, dtype: DType) -> int | Value:
    bias = node.ids.get("bias")
    if bias is None:
        return Null()
    if xv.is_constant(bias):
        return xv.constant(bias, "", lambda a: a, dtype)
    return xv.plain(bias)


def _batch_matmul(xv: XnnValues, node: XnnNode) -> None:
    a, b, out = (operand(node, name) for name in ("input1", "input2", "output"))
    rank, dims = xv.rank(out), xv.value(out).dims
    if rank < 2 or max(xv.rank(a), xv.rank(b)) > rank:
        raise GraphError(f"{node.type}: a product of {xv.rank(a)} and {xv.rank(b)} dims has {rank}")
    turned = (*range(rank - 2), rank - 1, rank - 2)
    x = _matrices(xv, xv.laid(a, identity(rank)), dims[:-2])
    y = _matrices(xv, xv.laid(b, turned if node.numbers["flags"] & TRANSPOSE_WEIGHTS else identity(rank)), dims[:-2])
    shape = (numel(dims[:-2]), *dims[-2:]) if rank > 2 else dims
    total = xv.call(BMM if rank > 2 else MM, (x, y), xv.dtype(out), shape)
    if rank > 3:
        total = xv.viewed(total, (*dims[:-2], -1, dims[-1]), dims)
    _finish(xv, node, total, identity(rank))


def _matrices(xv: XnnValues, tensor: int, batch: tuple[int, ...]) -> int:
    """Return matrices (..., rows, columns) as (B, rows, columns), repeated to these dims before them."""
    spec = xv.tensor(tensor)
    rows, columns = spec.dims[-2:]
    if spec.dims[:-2] != batch:
        tensor = xv.call(EXPAND, (tensor, IntList((*batch, -1, -1)), Bool(False)), spec.dtype, (*batch, rows, columns))
    if len(batch) < 2:
        return tensor
    return xv.viewed(tensor, (numel(batch), -1, columns), (numel(batch), rows, columns))


def pads(node: XnnNode) -> tuple[int, int, int, int]:
    top, right, bottom, left = (node.numbers[f"pad_{side}"] for side in ("top", "right", "bottom", "left"))
    return top, right, bottom, left


def pair(node: XnnNode, name: str) -> tuple[int, int]:
    return node.numbers[f"{name}_h"], node.numbers[f"{name}_w"]


def laid_out_filter(node: XnnNode, array: Array) -> Array:
    """Return the weights as (O, I / groups, kh, kw), those of a transposed convolution as (I, O / groups, kh, kw)."""
    if node.type == "DepthwiseConv2d":
        return array.transpose(3, 0, 1, 2)
    if node.type == "Conv2d":
        return array.transpose(0, 3, 1, 2)
    groups = node.numbers["groups"]
    outputs, height, width, inputs = array.shape
    split = array.reshape(groups, outputs // groups, height, width, inputs).transpose(0, 4, 1, 2, 3)
    return split.reshape(groups * inputs, outputs // groups, height, width)


class ConvolutionInput(NamedTuple):
    """An image (N, C, H, W) to convolve, its padding, and the rows and columns to add at the end of the result."""

    image: int
    padding: tuple[int, int]
    adjustment: tuple[int, int]


def _convolution_input(xv: XnnValues, node: XnnNode, image: int) -> ConvolutionInput:
    """Return a convolution with equal paddings of opposite sides that gives the same result."""
    top, right, bottom, left = pads(node)
    height, width = pair(node, "adjust")
    if node.type == "ConvTranspose2d":  # computed from its first row on: the other padding only ends it
        return ConvolutionInput(image, (top, left), (height + top - bottom, width + left - right))
    if (top, left) == (bottom, right):
        return ConvolutionInput(image, (top, left), (height, width))
    return ConvolutionInput(padded_image(xv, node, image, 0.0), (0, 0), (height, width))


def padded_image(xv: XnnValues, node: XnnNode, tensor: int, value: float) -> int:
    """Return an image (N, C, H, W) with the paddings of a node around it."""
    top, right, bottom, left = pads(node)
    spec = xv.tensor(tensor)
    bound = (*spec.dims[:2], spec.dims[2] + top + bottom, spec.dims[3] + left + right)
    return xv.call(PAD, (tensor, IntList((left, right, top, bottom)), Double(value)), spec.dtype, bound)


def filter_dims(xv: XnnValues, node: XnnNode) -> tuple[int, ...]:
    """Return the dims of the weights of a convolution, which must be constant."""
    weights, groups = operand(node, "filter"), node.numbers["groups"]
    if not xv.is_constant(weights):
        raise UnsupportedNodeError("expected constant weights, as XNNPACK does, got an argument or a result")
    dims = xv.value(weights).dims
    if len(dims) != 4 or groups < 1 or dims[3 if node.type == "DepthwiseConv2d" else 0] % groups:
        raise GraphError(f"{node.type}: weights {list(dims)} cannot be split into {groups} groups")
    return dims


def convolved(
    xv: XnnValues,
    node: XnnNode,
    image: int,
    weight: int,
    bias: int | Value,
    clamp: tuple[float, float] | None = None,
) -> int:
    """Return the result (N, C, H, W) of a convolution of an image (N, C, H, W)."""
    source = _convolution_input(xv, node, image)
    low, high = (Null() if np.isinf(bound) else Double(bound) for bound in clamp or (-np.inf, np.inf))
    arguments = (
        source.image,
        weight,
        bias,
        IntList(pair(node, "stride")),
        IntList(source.padding),
        IntList(pair(node, "dilation")),
        Bool(node.type == "ConvTranspose2d"),
        IntList(source.adjustment),
        Int(node.numbers["groups"]),
        low,
        high,
    )
    return xv.call(CONV_WITH_CLAMP, arguments, xv.tensor(image).dtype, xv.bound(operand(node, "output"), NHWC))


def _convolution(xv: XnnValues, node: XnnNode) -> None:
    source, weights, out = (operand(node, name) for name in ("input", "filter", "output"))
    dtype = xv.dtype(source)
    filter_dims(xv, node)
    weight = xv.constant(weights, f"for {node.type}", lambda a: laid_out_filter(node, a), dtype)
    image = xv.laid(source, NHWC)
    total = convolved(xv, node, image, weight, bias_of(xv, node, dtype), node.clamp)
    xv.put(out, xv.converted(total, xv.dtype(out)), NHWC)


# -- images ------------------------------------------------------------------------------------------------------------


def _pool_padding(node: XnnNode) -> tuple[int, int] | None:
    """Return the padding of a pool, if opposite sides are equal and at most half a window, as the ops of pools need."""
    top, right, bottom, left = pads(node)
    fits = all(2 * side <= size for side, size in zip((top, left), pair(node, "kernel"), strict=True))
    return (top, left) if (top, left) == (bottom, right) and fits else None


def _max_pool(xv: XnnValues, node: XnnNode) -> None:
    out = operand(node, "output")
    image, padding = xv.laid(operand(node, "input"), NHWC), _pool_padding(node)
    if padding is None:
        image, padding = padded_image(xv, node, image, -np.inf), (0, 0)
    kernel, stride, dilation = (IntList(pair(node, name)) for name in ("kernel", "stride", "dilation"))
    arguments = (image, kernel, stride, IntList(padding), dilation, Bool(False))
    _finish(xv, node, xv.call(MAX_POOL, arguments, xv.dtype(out), xv.bound(out, NHWC)), NHWC)


def _average_pool(xv: XnnValues, node: XnnNode) -> None:
    out = operand(node, "output")
    image, padding, dtype = xv.laid(operand(node, "input"), NHWC), _pool_padding(node), xv.dtype(out)
    bound = xv.bound(out, NHWC)

    def average(image: int, padding: tuple[int, int]) -> int:
        kernel, stride = (IntList(pair(node, name)) for name in ("kernel", "stride"))
        arguments = (image, kernel, stride, IntList(padding), Bool(False), Bool(False), Null())
        return xv.call(AVG_POOL, arguments, dtype, bound)

    if padding is None:  # the average with zeros around, divided by the part of the window that is not padding
        spec = xv.tensor(image)
        ones = xv.call(FULL_LIKE, (image, Double(1.0), *(Null() for _ in range(5))), spec.dtype, spec.dims)
        sums, parts = (average(padded_image(xv, node, tensor, 0.0), (0, 0)) for tensor in (image, ones))
        mean = xv.call(XNN_BINARY["Div"], (sums, parts), dtype, bound)
    else:
        mean = average(image, padding)
    _finish(xv, node, mean, NHWC)


def _global_average(xv: XnnValues, node: XnnNode) -> None:
    image = xv.laid(operand(node, "input"), NHWC)
    spec = xv.tensor(image)
    arguments = (image, IntList((2, 3)), Bool(True), Null())
    _finish(xv, node, xv.call(MEAN, arguments, spec.dtype, (*spec.dims[:2], 1, 1)), NHWC)


def _resize(xv: XnnValues, node: XnnNode) -> None:
    out = operand(node, "output")
    aligned = bool(node.numbers["flags"] & ALIGN_CORNERS)
    arguments = (xv.laid(operand(node, "input"), NHWC), IntList(pair(node, "new")), Bool(aligned), Null())
    _finish(xv, node, xv.call(RESIZE, arguments, xv.dtype(out), xv.bound(out, NHWC)), NHWC)


def _arg_max_pool(xv: XnnValues, node: XnnNode) -> None:
    """Translate the maximum of each window and its position there, counted down the columns of the window.

    Exporters up to 0.6 wrote this node for the maximum along one dim.
    """
    out, index = operand(node, "output"), operand(node, "output_index")
    image = xv.laid(operand(node, "input"), NHWC)
    spec, kernel = xv.tensor(image), pair(node, "kernel")
    height, width = spec.dims[2:]
    if any(pads(node)):
        raise UnsupportedNodeError(f"expected windows without padding, got {pads(node)} (top, right, bottom, left)")
    axis, keep = 2 if kernel == (height, 1) else 3, True
    if kernel not in ((height, 1), (1, width)):
        image, axis, keep = _taps(xv, image, kernel), 4, False
    dims = xv.bound(out, NHWC)
    best = xv.new(TensorSpec(spec.dtype, tuple(dims), spec.dtype))
    at = xv.new(TensorSpec(xv.dtype(index), tuple(dims), xv.dtype(index)))
    xv.call_into(MAX_ALONG_DIM, (image, Int(axis), Bool(keep)), (best, at))
    xv.put(out, best, NHWC)
    xv.put(index, at, NHWC)


def _taps(xv: XnnValues, image: int, kernel: tuple[int, int]) -> int:
    """Return the windows of an image (N, C, H, W) side by side, as (N, C, rows, columns, elements of a window)."""
    count, channels, height, width = xv.tensor(image).dims
    if not all(kernel):
        raise GraphError(f"ArgMaxPooling2d: expected a window of at least 1x1, got {kernel}")
    rows, columns = height // kernel[0], width // kernel[1]
    image = _narrowed(xv, _narrowed(xv, image, 2, 0, rows * kernel[0]), 3, 0, columns * kernel[1])
    split = (count, channels, rows, kernel[0], columns, kernel[1])
    windows = xv.permuted(xv.viewed(image, split, split), (0, 1, 2, 4, 5, 3))
    flat = (count, channels, rows, columns, kernel[0] * kernel[1])
    return xv.viewed(windows, flat, flat)


def _attention(xv: XnnValues, node: XnnNode) -> None:
    """Translate softmax(q * scale @ k.T + mask) @ v of (B, H, T, D), which 0.2 to 0.6 wrote."""
    query, key, value, out = (operand(node, name) for name in ("query", "key", "value", "output"))
    dtype = xv.dtype(out)
    dims = [xv.value(value_id).dims for value_id in (query, key, value)]
    if any(len(d) != 4 or d[:2] != dims[0][:2] for d in dims):
        shown = ", ".join(map(str, map(list, dims)))
        raise UnsupportedNodeError(f"expected query, key and value (B, H, T, D) with equal B and H, got {shown}")
    (batch, heads, rows, depth), (_, _, columns, _), (_, _, _, width) = dims
    count = batch * heads
    spec = xv.tensor(xv.plain(query))
    scaled = xv.call(MUL, (xv.plain(query), xv.plain(operand(node, "scale"))), dtype, spec.dims)
    q = xv.viewed(scaled, (count, -1, depth), (count, rows, depth))
    k = xv.viewed(xv.plain(key), (count, -1, depth), (count, columns, depth))
    v = xv.viewed(xv.plain(value), (count, -1, width), (count, columns, width))
    scores = xv.call(BMM, (q, xv.permuted(k, (0, 2, 1))), dtype, (count, rows, columns))
    if "mask" in node.ids:
        scores = xv.call(ADD, (scores, xv.plain(node.ids["mask"]), Int(1)), dtype, (count, rows, columns))
    weights = xv.call(SOFTMAX, (scores, Int(2), Bool(False)), dtype, (count, rows, columns))
    total = xv.call(BMM, (weights, v), dtype, (count, rows, width))
    total = xv.viewed(total, (batch, heads, -1, width), (batch, heads, rows, width))
    xv.put(out, total, identity(4))


FLOAT_NODES: dict[str, Translate] = {
    **{name: _unary(op) for name, op in XNN_UNARY.items()},
    **dict.fromkeys(XNN_BINARY, _binary),
    **dict.fromkeys(("Concatenate2", "Concatenate3", "Concatenate4", "Concatenate5"), _concatenate),
    **dict.fromkeys(("Conv2d", "DepthwiseConv2d", "ConvTranspose2d"), _convolution),
    **dict.fromkeys(("Clamp", "Convert", "Copy"), _same),
    "ArgMaxPooling2d": _arg_max_pool,
    "AvgPooling2d": _average_pool,
    "BatchMatrixMultiply": _batch_matmul,
    "ELU": _with_factor(ELU, Double(1.0), Double(1.0)),
    "FullyConnected": _fully_connected,
    "Gelu": _unary(GELU, String("none")),
    "GlobalAvgPooling2d": _global_average,
    "LeakyReLU": _with_factor(LEAKY_RELU),
    "MaxPooling2d": _max_pool,
    "PReLU": _prelu,
    "ScaledDotProductAttention": _attention,
    "Softmax": _softmax,
    "Square": _square,
    "StaticConstantPad": _pad,
    "StaticReshape": _reshape,
    "StaticResizeBilinear2D": _resize,
    "StaticSlice": _slice,
    "StaticTranspose": _transpose,
}
