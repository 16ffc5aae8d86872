"""Record ops as ExecuTorch's exporter writes them, with the shapes of their results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checkpoints.weights import XIELU_BETA
from ..container import DType, Span
from .trace import PREPACK, Dim, MethodTrace, TracedInt, TracedTensor, bound

Array = np.ndarray[Any, Any]


def constant(name: str, values: Array) -> TracedTensor:
    """Return a constant with these values."""
    contiguous = np.ascontiguousarray(values)
    dtype = next(each for each in DType if each.numpy == contiguous.dtype)
    return TracedTensor(dtype, values.shape, name, Span.of(name, contiguous.data.cast("B")))


def zeros(dims: Sequence[int]) -> TracedTensor:
    """Return a state of a delegate that is initially zero. States of one shape have one name, and so share their data.

    Its bytes are computed when they are written.
    """
    size, name = math.prod(dims), f"zeros {list(dims)}"
    data = Span.computed(name, 4 * size, lambda: np.zeros(size, "<f4").data.cast("B"))
    return TracedTensor(DType.FLOAT32, tuple(dims), name, data, state=True)


class OpTrace(MethodTrace):
    """A trace with a function for each op that decoders use."""

    # ---------------------------------------------------------------- shapes

    def view(self, x: TracedTensor, sizes: Sequence[Dim]) -> TracedTensor:
        """Return the same elements in another shape; one size may be -1."""
        known = math.prod(bound(size) for size in sizes if size != -1)
        rest = math.prod(x.bounds) // known
        dims = [rest if size == -1 else size for size in sizes]
        return self.call("aten.view_copy.default", x, tuple(sizes), dims=dims, dtype=x.dtype)

    def permute(self, x: TracedTensor, order: Sequence[int]) -> TracedTensor:
        return self.call("aten.permute_copy.default", x, tuple(order), dims=[x.dims[axis] for axis in order])

    def select(self, x: TracedTensor, axis: int, index: int) -> TracedTensor:
        dims = [dim for number, dim in enumerate(x.dims) if number != axis]
        return self.call("aten.select_copy.int", x, axis, index, dims=dims)

    def slice(self, x: TracedTensor, axis: int, start: Dim, end: Dim, size: Dim) -> TracedTensor:
        return self.call("aten.slice_copy.Tensor", x, axis, start, end, 1, dims=_with(x.dims, axis, size))

    def slice_into(self, out: TracedTensor, x: TracedTensor, axis: int, start: Dim, end: Dim) -> None:
        """Write a slice into a state."""
        self.call_into(out, "aten.slice_copy.Tensor", x, axis, start, end, 1)

    def squeeze(self, x: TracedTensor, axis: int) -> TracedTensor:
        return self.call("aten.squeeze_copy.dims", x, (axis,), dims=_without(x.dims, axis))

    def unsqueeze(self, x: TracedTensor, axis: int) -> TracedTensor:
        dims = list(x.dims)
        dims.insert(axis, 1)
        return self.call("aten.unsqueeze_copy.default", x, axis, dims=dims)

    def expand(self, x: TracedTensor, sizes: Sequence[Dim]) -> TracedTensor:
        return self.call("aten.expand_copy.default", x, tuple(sizes), False, dims=sizes)

    def cat(self, parts: Sequence[TracedTensor], axis: int, size: Dim) -> TracedTensor:
        return self.call("aten.cat.default", tuple(parts), axis, dims=_with(parts[0].dims, axis, size))

    # ---------------------------------------------------------------- arithmetic

    def add(self, a: TracedTensor, b: TracedTensor) -> TracedTensor:
        return self.call("aten.add.Tensor", a, b, 1, dims=_broadcast(a, b), dtype=a.dtype)

    def sub(self, a: TracedTensor, b: TracedTensor) -> TracedTensor:
        return self.call("aten.sub.Tensor", a, b, 1, dims=_broadcast(a, b))

    def mul(self, a: TracedTensor, b: TracedTensor) -> TracedTensor:
        return self.call("aten.mul.Tensor", a, b, dims=_broadcast(a, b))

    def div(self, a: TracedTensor, b: TracedTensor) -> TracedTensor:
        return self.call("aten.div.Tensor", a, b, dims=_broadcast(a, b))

    def unary(self, name: str, x: TracedTensor) -> TracedTensor:
        """Record an op of one tensor, such as sigmoid."""
        return self.call(f"aten.{name}.default", x, dims=x.dims)

    def clamp(self, x: TracedTensor, low: int | None, high: int | None) -> TracedTensor:
        return self.call("aten.clamp.default", x, low, high, dims=x.dims, dtype=x.dtype)

    def to_float(self, x: TracedTensor) -> TracedTensor:
        return self.call("aten._to_copy.default", x, None, None, None, None, False, None, dims=x.dims)

    def scalar(self, value: float) -> TracedTensor:
        """Return a number as a constant without dimensions, as the exporter writes factors."""
        rounded = np.asarray(value, "<f4")
        return self.packed(constant(f"scalar {float(rounded)!r}", rounded))

    def packed_zeros(self, dims: Sequence[int]) -> TracedTensor:
        """Return a state that is initially zero and that calls of the same delegate change."""
        state = zeros(dims)
        return self.call(PREPACK, state, dims=state.dims)

    def scaled(self, x: TracedTensor, factor: float) -> TracedTensor:
        return self.mul(x, self.scalar(factor))

    def capped(self, x: TracedTensor, cap: float | None) -> TracedTensor:
        """Return cap * tanh(x / cap)."""
        if cap is None:
            return x
        return self.scaled(self.unary("tanh", self.div(x, self.scalar(cap))), cap)

    def silu(self, x: TracedTensor) -> TracedTensor:
        return self.mul(x, self.unary("sigmoid", x))

    def gelu(self, x: TracedTensor) -> TracedTensor:
        return self.call("aten.gelu.default", x, "none", dims=x.dims)

    def gelu_tanh(self, x: TracedTensor) -> TracedTensor:
        return self.call("aten.gelu.default", x, "tanh", dims=x.dims)

    def relu2(self, x: TracedTensor) -> TracedTensor:
        """Record the square of relu."""
        positive = self.unary("relu", x)
        return self.mul(positive, positive)

    def xielu(self, x: TracedTensor, positive_factor: TracedTensor, negative_factor: TracedTensor) -> TracedTensor:
        """Record xIELU: `a x ** 2` above 0 and `b (exp(x) - 1 - x)` below it, and everywhere half of x."""
        positive = self.unary("relu", x)
        negative = self.sub(x, positive)
        bend = self.sub(self.sub(self.unary("exp", negative), self.scalar(1)), negative)
        curved = self.add(self.mul(self.mul(positive, positive), positive_factor), self.mul(bend, negative_factor))
        return self.add(curved, self.scaled(x, XIELU_BETA))

    def softmax(self, x: TracedTensor) -> TracedTensor:
        return self.call("aten._softmax.default", x, -1, False, dims=x.dims)

    def mean(self, x: TracedTensor, axis: int) -> TracedTensor:
        return self.call("aten.mean.dim", x, (axis,), False, None, dims=_without(x.dims, axis))

    def bmm(self, a: TracedTensor, b: TracedTensor) -> TracedTensor:
        return self.call("aten.bmm.default", a, b, dims=(a.dims[0], a.dims[1], b.dims[2]))

    def rms_norm(self, x: TracedTensor, weight: TracedTensor, eps: float) -> TracedTensor:
        return self.call("et_vk.rms_norm.default", x, weight, float(np.float32(eps)), dims=x.dims)

    def layer_norm(self, x: TracedTensor, weight: TracedTensor, bias: TracedTensor | None, eps: float) -> TracedTensor:
        """Record the norm of each row."""
        stats = (*x.dims[:-1], 1)
        dims = (x.dims, stats, stats)
        args = (x, (x.dims[-1],), weight, bias, float(np.float32(eps)))
        return self.call_several("aten.native_layer_norm.default", *args, dims=dims)[0]

    def attention(self, q: TracedTensor, k: TracedTensor, v: TracedTensor) -> TracedTensor:
        """Record the attention of all rows to all rows, (1, H, S, D)."""
        return self.call("et_vk.sdpa.default", q, k, v, None, None, dims=q.dims)

    # ---------------------------------------------------------------- integers

    def size(self, x: TracedTensor, axis: int) -> TracedInt:
        """Compute a dynamic size of an input, before its first use."""
        size = x.dims[axis]
        assert isinstance(size, TracedInt)
        return self.integer("sym_size.int", x, axis, out=size)

    def element(self, x: TracedTensor, index: int, most: int) -> TracedInt:
        """Return an element of an integer vector; it is at most `most`."""
        return self.integer("et_vk.select_as_symint.default", x, 0, index, out=TracedInt(most))

    def plus(self, a: Dim, b: Dim) -> TracedInt:
        return self.integer("add", a, b, out=TracedInt(bound(a) + bound(b)))

    def minus(self, a: Dim, b: Dim) -> TracedInt:
        return self.integer("sub", a, b, out=TracedInt(bound(a)))

    def times(self, a: Dim, b: Dim) -> TracedInt:
        return self.integer("mul", a, b, out=TracedInt(bound(a) * bound(b)))

    # ---------------------------------------------------------------- kernel calls

    def index_select(self, x: TracedTensor, index: TracedTensor) -> TracedTensor:
        """Return rows of a table. Outside of delegates, since they would convert its integers."""
        out = TracedTensor(x.dtype, (index.dims[0], *x.dims[1:]))
        return self.kernel("aten::index_select.out", x, 0, index, out=out)

    def index_put(self, x: TracedTensor, index: TracedTensor, axis: int, values: TracedTensor) -> TracedTensor:
        """Return a tensor with rows of an axis replaced."""
        out = TracedTensor(x.dtype, x.dims)
        return self.kernel("aten::index_put.out", x, (*[None] * axis, index), values, False, out=out)

    def assign(self, state: TracedTensor, value: TracedTensor) -> None:
        """Set a state at the end of a method."""
        self.kernel("aten::copy_", state, value, False, out=state)


def _with(dims: Sequence[Dim], axis: int, size: Dim) -> list[Dim]:
    return [size if number == axis % len(dims) else dim for number, dim in enumerate(dims)]


def _without(dims: Sequence[Dim], axis: int) -> list[Dim]:
    return [dim for number, dim in enumerate(dims) if number != axis]


def _broadcast(a: TracedTensor, b: TracedTensor) -> list[Dim]:
    rank = max(len(a.dims), len(b.dims))
    left, right = ((*[1] * (rank - len(each.dims)), *each.dims) for each in (a, b))
    return [y if x == 1 else x for x, y in zip(left, right, strict=True)]
