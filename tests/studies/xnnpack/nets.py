"""Small delegates with every type of node, each node an output with its result by NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.support.harness.xnn_writer import xnn_node, xnn_pte, xnn_value
from webpte.container import XnnNode, XnnType, XnnValue

_TYPES = {"f4": XnnType.FP32, "f2": XnnType.FP16}
Array = np.ndarray


class Net:
    """A delegate: values with what they must be. Arrays are in the order of dims of the delegate."""

    def __init__(self, dtype: str, seed: int = 35) -> None:
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)
        self.values: list[XnnValue] = []
        self.nodes: list[XnnNode] = []
        self.inputs: list[Array] = []
        self.constants: list[Array] = []
        self.expected: list[Array] = []
        self._arguments = 0

    def normal(self, *dims: int) -> Array:
        return self.rng.standard_normal(dims).astype(self.dtype)

    def _add(self, array: Array, **more: Any) -> int:
        kind = XnnType.INT32 if array.dtype.kind == "i" else _TYPES[self.dtype]
        self.values.append(xnn_value(array.shape, type=kind, **more))
        return len(self.values) - 1

    def _argument(self) -> int:
        self._arguments += 1
        return self._arguments - 1

    def input(self, array: Array) -> int:
        """Return an input of the program; before any node."""
        self.inputs.append(array)
        return self._add(array, argument=self._argument())

    def constant(self, array: Array) -> int:
        self.constants.append(array)
        return self._add(array, constant=len(self.constants))

    def output(self, array: Array) -> int:
        """Return an output, and what it must be."""
        self.expected.append(array)
        kind = array if array.dtype.kind == "i" else array.astype(self.dtype)
        return self._add(kind, argument=self._argument(), output=True)

    def node(self, type: str, result: Array, clamp: tuple[float, float] | None = None, **fields: Any) -> int:
        """Return a node whose one result is an output."""
        out = self.output(result if clamp is None else np.clip(result, *clamp))
        self.nodes.append(xnn_node(type, clamp, output=out, **fields))
        return out

    def program(self) -> bytes:
        return xnn_pte(self.values, self.nodes, self.constants)


_erf = np.vectorize(math.erf, otypes=[float])
UNARY: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Ceiling": np.ceil,
    "Clamp": lambda x: x,
    "Convert": lambda x: x,
    "Copy": lambda x: x,
    "Cos": np.cos,
    "Exp": np.exp,
    "Floor": np.floor,
    "Gelu": lambda x: x / 2 * (1 + _erf(x / math.sqrt(2))),
    "Hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "Negate": np.negative,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sin": np.sin,
    "Softmax": lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True),
    "Square": np.square,
    "Tanh": np.tanh,
}
POSITIVE: dict[str, Callable[[Array], Array]] = {
    "Log": np.log,
    "ReciprocalSquareRoot": lambda x: 1 / np.sqrt(x),
    "SquareRoot": np.sqrt,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Div": np.divide,
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Multiply": np.multiply,
    "Subtract": np.subtract,
}


def unary(dtype: str) -> Net:
    net = Net(dtype)
    x = net.normal(2, 3, 5, 7)
    y = np.abs(x) + np.array(0.5, dtype)
    a, b = net.input(x), net.input(y)
    wide, positive = x.astype(float), y.astype(float)
    for name, function in UNARY.items():
        net.node(name, function(wide), clamp=(-0.5, 0.75) if name == "Clamp" else None, input=a)
    for name, function in POSITIVE.items():
        net.node(name, function(positive), input=b)
    net.node("LeakyReLU", np.where(wide < 0, 0.125 * wide, wide), factor=0.125, input=a)
    net.node("ELU", np.where(wide < 0, 1.5 * np.expm1(wide), wide), factor=1.5, input=a)
    slope = net.normal(7)
    net.node("PReLU", np.where(wide < 0, wide * slope, wide), input1=a, input2=net.constant(slope))
    return net


def binary(dtype: str) -> Net:
    net = Net(dtype)
    x, y = net.normal(2, 3, 5, 7), np.abs(net.normal(5, 1)) + np.array(0.5, dtype)
    a, b, c = net.input(x), net.input(y), net.constant(y)
    for name, function in BINARY.items():
        result = function(x.astype(float), y.astype(float))
        net.node(name, result, clamp=(-0.25, math.inf), input1=a, input2=b)
        net.node(name, result, input1=a, input2=c)
    net.node("Multiply", x.astype(float) ** 2, input1=a, input2=a)
    return net


def movement(dtype: str) -> Net:
    net = Net(dtype)
    x = net.normal(2, 3, 5, 7)
    a = net.input(x)
    back = net.node("StaticTranspose", x.transpose(0, 2, 3, 1), num_dims=4, perm=(0, 2, 3, 1), input=a)
    turned = x.transpose(0, 2, 3, 1)
    net.node("StaticTranspose", turned.transpose(1, 0, 3, 2), num_dims=4, perm=(1, 0, 3, 2), input=back)
    net.node("StaticReshape", turned.reshape(2, 35, 3), num_dims=3, shape=(2, 0, 3), input=back)
    net.node("StaticSlice", turned[:, 1:4, :, :2], num_dims=4, offsets=(0, 1, 0, 0), sizes=(2, 3, 7, 2), input=back)
    pads = ((0, 0), (1, 0), (2, 3), (0, 1))
    padded = np.pad(turned, pads, constant_values=np.array(0.5, dtype))
    pre, post = zip(*pads, strict=True)
    net.node("StaticConstantPad", padded, factor=0.5, pre=pre, post=post, input=back)
    parts = {"input1": back, "input2": net.constant(net.normal(2, 5, 7, 3)), "input3": back}
    arrays = [turned, net.constants[-1], turned, turned, turned]
    for count in (2, 3, 4, 5):
        parts[f"input{count}"] = parts.get(f"input{count}", back)
        chosen: dict[str, Any] = {f"input{i}": parts[f"input{i}"] for i in range(1, count + 1)}
        net.node(f"Concatenate{count}", np.concatenate(arrays[:count], 2), axis=2, **chosen)
    return net


def products(dtype: str) -> Net:
    net = Net(dtype)
    x, y, q = net.normal(2, 3, 8), net.normal(2, 8, 5), net.normal(2, 2, 3, 8)
    rows = net.normal(4, 8)
    a, b, c, d = net.input(x), net.input(y), net.input(q), net.input(rows)
    weight, bias = net.normal(4, 8), net.normal(4)
    wide = x.astype(float)
    result = wide @ weight.astype(float).T
    filter_id, bias_id = net.constant(weight), net.constant(bias)
    net.node("FullyConnected", result + bias, clamp=(0.0, math.inf), input=a, filter=filter_id, bias=bias_id)
    turned = net.constant(np.ascontiguousarray(weight.T))
    net.node("FullyConnected", result, flags=1, input=a, filter=turned)
    net.node("FullyConnected", wide @ rows.astype(float).T, input=a, filter=d)
    net.node("BatchMatrixMultiply", wide @ y.astype(float), input1=a, input2=b)
    net.node("BatchMatrixMultiply", wide @ rows.astype(float).T, flags=1, input1=a, input2=d)
    for dims in ((2, 2, 8, 5), (2, 1, 8, 5), (2, 8, 5), (3, 1, 2, 8, 5)):
        matrices = net.normal(*dims)
        result = q.astype(float) @ matrices.astype(float)
        net.node("BatchMatrixMultiply", result, input1=c, input2=net.constant(matrices))
    return net


def attention(dtype: str) -> Net:
    net = Net(dtype)
    q = net.normal(2, 2, 3, 8)
    c = net.input(q)
    scale, mask = net.normal(8), net.normal(3, 3)
    heads = q.astype(float)
    scores = np.exp((heads * scale) @ heads.swapaxes(2, 3) + mask)
    attended = scores / scores.sum(-1, keepdims=True) @ heads
    ids: dict[str, Any] = {"query": c, "key": c, "value": c, "scale": net.constant(scale), "mask": net.constant(mask)}
    net.node("ScaledDotProductAttention", attended, **ids)
    return net


Pads = tuple[int, int, int, int]


def _windows(x: Array, kernel: int, stride: int, pads: Pads, fill: float, dilation: int = 1) -> Array:
    """Windows (N, oh, ow, taps, C) of an image (N, H, W, C)."""
    top, right, bottom, left = pads
    padded = np.pad(x.astype(float), ((0, 0), (top, bottom), (left, right), (0, 0)), constant_values=fill)
    reach = (kernel - 1) * dilation + 1
    ys, xs = (range(0, size - reach + 1, stride) for size in padded.shape[1:3])
    taps = [(i * dilation, j * dilation) for i in range(kernel) for j in range(kernel)]
    rows = [[np.stack([padded[:, y + i, x + j] for i, j in taps], 1) for x in xs] for y in ys]
    return np.stack([np.stack(row, 1) for row in rows], 1)


def _geometry(kernel: int, stride: int, pads: Pads, dilation: int = 1) -> dict[str, Any]:
    sides = dict(zip(("pad_top", "pad_right", "pad_bottom", "pad_left"), pads, strict=True))
    both = {"kernel": kernel, "stride": stride, "dilation": dilation}
    return sides | {f"{name}_{axis}": size for name, size in both.items() for axis in "hw"}


def convolutions(dtype: str) -> Net:
    net = Net(dtype)
    x = net.normal(2, 7, 6, 4)
    a = net.input(x)
    for groups, stride, pads, dilation in ((1, 2, (1, 1, 1, 1), 1), (2, 1, (0, 1, 2, 0), 2), (1, 1, (0, 0, 0, 0), 1)):
        weight, bias = net.normal(6, 3, 3, 4 // groups), net.normal(6)
        taps = _windows(x, 3, stride, pads, 0.0, dilation)
        flat = weight.reshape(groups, 6 // groups, 9, 4 // groups).astype(float)
        split = taps.reshape(*taps.shape[:4], groups, -1)
        result = np.einsum("nhwtgi,goti->nhwgo", split, flat).reshape(*taps.shape[:3], 6) + bias
        ids: dict[str, Any] = {"input": a, "filter": net.constant(weight), "bias": net.constant(bias)}
        group: dict[str, Any] = {"groups": groups, "group_in": 4 // groups, "group_out": 6 // groups}
        net.node("Conv2d", result, clamp=(-1.0, 2.0), **ids, **group, **_geometry(3, stride, pads, dilation))
    weight = net.normal(1, 3, 3, 8)
    taps = _windows(x, 3, 1, (1, 1, 1, 1), 0.0)
    result = np.einsum("nhwtc,tcm->nhwcm", taps, weight.reshape(9, 4, 2).astype(float)).reshape(2, 7, 6, 8)
    group = {"groups": 4, "group_in": 1, "group_out": 2}
    ids = {"input": a, "filter": net.constant(weight)}
    net.node("DepthwiseConv2d", result, **ids, **group, **_geometry(3, 1, (1, 1, 1, 1)))
    for groups, pads, more in ((1, (1, 1, 1, 1), 1), (2, (1, 1, 1, 1), 1), (1, (0, 2, 1, 1), 0), (2, (2, 0, 0, 1), 1)):
        weight = net.normal(6, 3, 3, 4 // groups)
        group = {"groups": groups, "group_in": 4 // groups, "group_out": 6 // groups}
        group |= {"adjust_h": more, "adjust_w": more}
        ids = {"input": a, "filter": net.constant(weight)}
        result = _scattered(x, weight, groups, pads, more)
        net.node("ConvTranspose2d", result, **ids, **group, **_geometry(3, 2, pads))
    return net


def _scattered(x: Array, weight: Array, groups: int, pads: Pads, more: int) -> Array:
    """Return a transposed convolution of 3x3 with stride 2, and `more` rows and columns."""
    n, height, width, channels = x.shape
    outputs = len(weight)
    total = np.zeros((n, 2 * height + 2, 2 * width + 2, outputs))
    split = x.reshape(n, height, width, groups, channels // groups).astype(float)
    flat = weight.reshape(groups, outputs // groups, 3, 3, -1).astype(float)
    for i in range(3):
        for j in range(3):
            part = np.einsum("nhwgi,goi->nhwgo", split, flat[:, :, i, j]).reshape(n, height, width, outputs)
            total[:, i : i + 2 * height : 2, j : j + 2 * width : 2] += part
    top, right, bottom, left = pads
    return total[:, top : 2 * height + 1 - bottom + more, left : 2 * width + 1 - right + more]


def images(dtype: str) -> Net:
    net = Net(dtype)
    x = net.normal(2, 7, 6, 4)
    wide = x.astype(float)
    a = net.input(x)
    for pads in ((1, 1, 1, 1), (0, 1, 2, 0), (2, 2, 2, 2)):
        most = _windows(x, 3, 2, pads, -math.inf).max(3)
        net.node("MaxPooling2d", most, clamp=(0.0, 1.0), input=a, **_geometry(3, 2, pads))
        counts = _windows(np.ones_like(x), 3, 2, pads, 0.0).sum(3)
        mean = _windows(x, 3, 2, pads, 0.0).sum(3) / counts
        net.node("AvgPooling2d", mean, flags=64, input=a, **_geometry(3, 2, pads, 0))
    net.node("GlobalAvgPooling2d", wide.mean((1, 2), keepdims=True), flags=64, input=a)
    for flags in (0, 8):
        net.node("StaticResizeBilinear2D", _resized(wide, 9, 11, bool(flags)), flags=flags, new_h=9, new_w=11, input=a)
    for height, width in ((7, 1), (1, 6), (3, 2), (2, 4)):
        rows, columns = 7 // height, 6 // width
        cut = wide[:, : rows * height, : columns * width].reshape(2, rows, height, columns, width, 4)
        taps = cut.transpose(0, 1, 3, 5, 4, 2).reshape(2, rows, columns, 4, width * height)
        best, at = net.output(taps.max(-1)), net.output(taps.argmax(-1))
        size: dict[str, Any] = {"kernel_h": height, "kernel_w": width}
        net.nodes.append(xnn_node("ArgMaxPooling2d", input=a, output=best, output_index=at, **size))
    return net


def _resized(x: Array, height: int, width: int, aligned: bool) -> Array:
    for axis, size in ((1, height), (2, width)):
        old = x.shape[axis]
        at = np.arange(size) * ((old - 1) / (size - 1)) if aligned else (np.arange(size) + 0.5) * old / size - 0.5
        at = np.clip(at, 0, old - 1)
        low = np.floor(at).astype(int)
        part = (at - low).reshape([-1 if d == axis else 1 for d in range(4)])
        high = np.minimum(low + 1, old - 1)
        x = np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part
    return x


NETS = {net.__name__: net for net in (unary, binary, movement, products, attention, convolutions, images)}
