"""Small delegates on int8 codes, each node an output with its codes by NumPy, with the roundings of XNNPACK."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.harness.xnn_writer import xnn_node, xnn_pte, xnn_value
from webpte.container import XnnNode, XnnQuant, XnnType, XnnValue

Array = np.ndarray


class CodedNet:
    """Values with their codes. Inputs and outputs of the program are int8."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(35)
        self.values: list[XnnValue] = []
        self.nodes: list[XnnNode] = []
        self.inputs: list[Array] = []
        self.constants: list[Array] = []
        self.expected: list[Array] = []

    def codes(self, *dims: int) -> Array:
        return self.rng.integers(-128, 128, dims).astype("i1")

    def _add(self, dims: tuple[int, ...], **more: Any) -> int:
        self.values.append(xnn_value(dims, **more))
        return len(self.values) - 1

    def _argument(self) -> int:
        return len(self.inputs) + len(self.expected)

    def input(self, codes: Array, scale: Any, zero: int) -> int:
        quant = XnnQuant("tensor", (float(scale),), zero)
        number = self._add(codes.shape, argument=self._argument(), type=XnnType.QINT8, quant=quant)
        self.inputs.append(codes)
        return number

    def constant(self, array: Array, type: XnnType, quant: XnnQuant) -> int:
        stored = array if type is not XnnType.QCINT4 else nibbles(array)
        self.constants.append(stored)
        return self._add(array.shape, constant=len(self.constants), type=type, quant=quant)

    def node(
        self,
        type: str,
        numbers: Array,
        scale: Any,
        zero: int,
        clamp: tuple[float, float] | None = None,
        early: bool = False,
        **fields: Any,
    ) -> int:
        """A node whose result is `numbers`, in units of the output's scale. `early`: rounded with the zero point."""
        low, high = -128.0, 127.0
        if clamp is not None:
            low, high = (float(np.rint(np.clip(end / np.float32(scale) + zero, -128, 127))) for end in clamp)
        quant = XnnQuant("tensor", (float(scale),), zero)
        codes = np.rint(numbers.astype(np.float32) + zero) if early else np.rint(numbers.astype(np.float32)) + zero
        codes = np.clip(codes, low, high).astype("i1")
        out = self._add(codes.shape, argument=self._argument(), output=True, type=XnnType.QINT8, quant=quant)
        self.expected.append(codes)
        self.nodes.append(xnn_node(type, clamp, output=out, **fields))
        return out

    def program(self) -> bytes:
        return xnn_pte(self.values, self.nodes, self.constants)


def nibbles(codes: Array) -> Array:
    """Codes from -8 to 7, two to a byte, in rows of whole bytes."""
    filled = np.pad(codes, ((0, 0), (0, codes.shape[1] % 2))) + 8
    return (filled[:, ::2] | filled[:, 1::2] << 4).astype("u1")


def fixed_point(numbers: Array, factor: int, bits: int) -> Array:
    """Return integers times a factor with that many bits after the point, rounded half up."""
    return (numbers * factor + (1 << (bits - 1))) >> bits


def summed(p: Array, q: Array, a: np.float32, b: np.float32) -> Array:
    """Return p * a + q * b with factors of 21 bits, rounded half up."""
    bits = 20 - int(np.floor(np.log2(max(abs(a), abs(b)))))
    first, second = (int(np.rint(float(ratio) * 2.0**bits)) for ratio in (a, b))
    return fixed_point(p * first + q * second, 1, bits)


def coded_net() -> CodedNet:
    """Return every type of node that the partitioner leaves on codes."""
    net = CodedNet()
    scale, zero, other, other_zero = np.float32(0.057), -7, np.float32(0.031), 11
    x, y, z = (net.codes(2, 7, 6, 4) for _ in range(3))
    a, b, c = net.input(x, scale, zero), net.input(y, other, other_zero), net.input(z, scale, zero)
    p, q, r = x.astype(np.int64) - zero, y.astype(np.int64) - other_zero, z.astype(np.int64) - zero
    out = np.float32(0.11)
    for name, sign in (("Add", 1), ("Subtract", -1)):
        numbers = summed(p, q, scale / out, sign * other / out)
        net.node(name, numbers, out, 5, clamp=(-3.0, 4.0), input1=a, input2=b)
    net.node("Multiply", (p * q).astype(np.float32) * (scale * other / out), out, 3, input1=a, input2=b)
    ratio = int(np.rint(scale / out * np.float32(256)))
    net.node("Convert", fixed_point(p, ratio, 8), out, 1, input=a)
    below = int(np.rint(scale * np.float32(0.2) / out * np.float32(256)))
    leaky = np.where(p < 0, fixed_point(p, below, 8), fixed_point(p, ratio, 8))
    net.node("LeakyReLU", leaky, out, 1, factor=0.2, input=a)
    net.node("Clamp", p, scale, zero, clamp=(-2.0, 3.0), input=a)
    numbers = p.astype(np.float32) * scale
    net.node("Tanh", np.tanh(numbers) * np.float32(128), 1 / 128, 0, early=True, input=a)
    net.node("Sigmoid", 1 / (1 + np.exp(-numbers)) * np.float32(256), 1 / 256, -128, early=True, input=a)
    gates = numbers * (np.clip(numbers + 3, 0, 6) / 6) * (np.float32(1) / out)
    net.node("Hardswish", gates, out, 4, early=True, input=a)
    mean = p.sum((1, 2), keepdims=True).astype(np.float32)
    net.node("GlobalAvgPooling2d", mean * np.float32(1 / 42), scale, zero, early=True, flags=64, input=a)
    net.node("Concatenate2", np.concatenate([p, r], 3), scale, zero, axis=3, input1=a, input2=c)
    net.node("Concatenate3", np.concatenate([p, r, p], 1), scale, zero, axis=1, input1=a, input2=c, input3=a)
    net.node("StaticTranspose", p.transpose(0, 3, 1, 2), scale, zero, num_dims=4, perm=(0, 3, 1, 2), input=a)
    net.node("StaticReshape", p.reshape(2, 42, 4), scale, zero, num_dims=3, shape=(2, 42, 4), input=a)
    net.node("StaticSlice", p[:, 1:4], scale, zero, num_dims=4, offsets=(0, 1, 0, 0), sizes=(2, 3, 6, 4), input=a)
    padded = np.pad(p, ((0, 0), (1, 0), (0, 2), (0, 0)), constant_values=round(0.5 / scale))
    net.node("StaticConstantPad", padded, scale, zero, factor=0.5, pre=(0, 1, 0, 0), post=(0, 0, 2, 0), input=a)
    pool: dict[str, Any] = {f"{name}_{axis}": size for name, size in (("kernel", 2), ("stride", 2)) for axis in "hw"}
    most = p[:, :6].reshape(2, 3, 2, 3, 2, 4).max((2, 4))
    net.node("MaxPooling2d", most, scale, zero, dilation_h=1, dilation_w=1, input=a, **pool)
    _layers(net, a, p, scale)
    return net


def _layers(net: CodedNet, a: int, p: Array, scale: np.float32) -> None:
    """A convolution of 3x3 with padding, one for each channel, and linear layers of 8 and 4 bits."""
    out = 1.7
    around = np.pad(p, ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = np.stack([around[:, i : i + 7, j : j + 6] for i in range(3) for j in range(3)], 3)  # (N, H, W, 9, C)
    pads = dict.fromkeys(("pad_top", "pad_right", "pad_bottom", "pad_left"), 1)
    sizes = {f"{name}_{axis}": n for name, n in (("kernel", 3), ("stride", 1), ("dilation", 1)) for axis in "hw"}
    for name, bits in (("Conv2d", 8), ("DepthwiseConv2d", 8), ("FullyConnected", 8), ("FullyConnected", 4)):
        count = 4 if name == "DepthwiseConv2d" else 6
        scales = net.rng.uniform(0.01, 0.03, count).astype("f4")
        bias = net.rng.integers(-3000, 3000, count).astype("i4")
        if name == "Conv2d":
            weight = net.codes(6, 3, 3, 4)
            total = np.einsum("nhwtc,otc->nhwo", taps, weight.reshape(6, 9, 4).astype(np.int64))
            group = {"groups": 1, "group_in": 4, "group_out": 6}
        elif name == "DepthwiseConv2d":
            weight = net.codes(1, 3, 3, 4)
            total = np.einsum("nhwtc,tc->nhwc", taps, weight.reshape(9, 4).astype(np.int64))
            group = {"groups": 4, "group_in": 1, "group_out": 1}
        else:
            weight = net.codes(6, 4) >> (8 - bits)
            total, group = p @ weight.T.astype(np.int64), {}
        quant = XnnQuant("channel", tuple(map(float, scales)), channel_dim=3 if name == "DepthwiseConv2d" else 0)
        kind = XnnType.QCINT8 if bits == 8 else XnnType.QCINT4
        ids: dict[str, Any] = {"filter": net.constant(weight, kind, quant)}
        ids["bias"] = net.constant(bias, XnnType.QCINT32, XnnQuant("channel", tuple(map(float, scales * scale))))
        factor = np.float32(scale) * scales / np.float32(out)
        geometry: Any = {} if name == "FullyConnected" else {**pads, **sizes, **group}
        net.node(name, (total + bias).astype(np.float32) * factor, out, -4, (0.0, np.inf), input=a, **ids, **geometry)
