"""Rules for the dims of an op's results before a method runs: `OpTraits(dims=like("self"))`.

A rule reads each size as a number or a name. A name is a size that is known only when the method runs. It is constant
during a call, so equal names mean equal sizes. Passes use rules to prove that sizes are equal. The dims of an op
without a rule are unknown.

A rule returns the dims of the outputs in order, or of the first ones only. A scalar result has the dims of one size. A
rule that cannot determine dims returns an empty list, or raises a GraphError, IndexError or ValueError.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from ..graph import Bool, Int, Null, TensorSpec, Value, normalize_dim

Dim = int | tuple[str, int, int]  # a size, or the name of one
Dims = tuple[Dim, ...]
UNLIMITED = 2**31 - 1  # the end of a slice that goes to the end


class KnownDims(Protocol):
    """The sizes of a call, for a rule; arguments have the names of the op's parameters."""

    def value(self, name: str) -> Value:
        """Return an argument as the graph has it."""

    def dims(self, name: str) -> Dims:
        """Return the dims of a tensor; a number has none."""

    def members(self, name: str) -> list[Dims]:
        """Return the dims of each tensor of a list."""

    def sizes(self, name: str) -> Dims:
        """Return the integers of a list, or a single one."""

    def bound(self) -> tuple[int, ...]:
        """Return the largest dims of the first output."""

    def at_most(self, size: Dim, limit: Dim) -> bool:
        """Return whether a size never exceeds another."""

    def derived(self, size: Dim, less: int, stride: int) -> Dim:
        """Return the name of (size - less - 1) // stride + 1. Equal arguments have equal names."""

    def unknown(self) -> Dim:
        """Return a new, unique name."""


Rule = Callable[[KnownDims], list[Dims]]


def like(*names: str) -> Rule:
    """Return the rule: each output has the dims of an argument."""
    return lambda known: [known.dims(name) for name in names]


def broadcast(*names: str) -> Rule:
    """Return the rule: the arguments broadcast, as in PyTorch. Numbers have no dims."""
    return lambda known: _broadcast([known.dims(name) for name in names])


def broadcast_members(name: str) -> Rule:
    """Return the rule: the tensors of a list broadcast."""
    return lambda known: _broadcast(known.members(name))


def _broadcast(operands: list[Dims]) -> list[Dims]:
    common: Dims = ()
    for dims in operands:
        rank = max(len(common), len(dims))
        left, right = ((1,) * (rank - len(row)) + row for row in (common, dims))
        pairs = list(zip(left, right, strict=True))
        if not all(x == y or 1 in (x, y) for x, y in pairs):
            return []
        common = tuple(y if x == 1 else x for x, y in pairs)
    return [common]


def linear(x: str, weight: str) -> Rule:
    """Return the rule: (..., K) and a weight (N, ...) give (..., N)."""
    return lambda known: [(*known.dims(x)[:-1], known.dims(weight)[0])]


def matmul(a: str, b: str) -> Rule:
    """Return the rule: (..., M, K) and (..., K, N) give (..., M, N)."""
    return lambda known: [(*known.dims(a)[:-1], known.dims(b)[-1])]


def columns(x: str, widths: str, like: str) -> Rule:
    """Return the rule: (..., K) gives an output (..., N) for each N of a list, or one with the dims of `like`."""

    def rule(known: KnownDims) -> list[Dims]:
        if isinstance(known.value(like), TensorSpec):
            return [known.dims(like)]
        return [(*known.dims(x)[:-1], width) for width in known.sizes(widths)]

    return rule


def looked_up(table: str, indices: str) -> Rule:
    """Return the rule: a row of a stored table for each index."""

    def rule(known: KnownDims) -> list[Dims]:
        spec = known.value(table)
        stored = isinstance(spec, TensorSpec) and spec.stored
        return [(*known.dims(indices), known.bound()[-1])] if stored else []

    return rule


def size_of(x: str, axis: str) -> Rule:
    """Return the rule: a number, the size of a tensor along an axis."""
    return lambda known: [(known.dims(x)[_axis(known, axis, len(known.dims(x)))],)]


def viewed(x: str, size: str) -> Rule:
    """Return the rule: the same elements with the dims `size`, where -1 is the remaining size."""

    def rule(known: KnownDims) -> list[Dims]:
        dims, sizes = known.dims(x), known.sizes(size)
        if len(dims) == len(sizes) and all(asked in (-1, own) for asked, own in zip(sizes, dims, strict=True)):
            return [dims]
        rest = _left_over(dims, sizes)
        return [tuple((known.unknown() if rest is None else rest) if asked == -1 else asked for asked in sizes)]

    return rule


def _left_over(dims: Dims, sizes: Dims) -> Dim | None:
    """Return the size for -1 in a view, if it is a number or a single name."""
    known, asked = (math.prod(d for d in row if isinstance(d, int) and d != -1) for row in (dims, sizes))
    names, taken = (Counter(d for d in row if not isinstance(d, int)) for row in (dims, sizes))
    others = list((names - taken).elements())
    if taken - names or len(others) > 1 or not asked or known % asked:
        return None
    rest = known // asked
    return rest if not others else others[0] if rest == 1 else None


def expanded(x: str, size: str) -> Rule:
    """Return the rule: repeated to `size`, where -1 keeps a dim."""

    def rule(known: KnownDims) -> list[Dims]:
        sizes, dims = known.sizes(size), known.dims(x)
        own = (1,) * (len(sizes) - len(dims)) + dims
        return [tuple(kept if asked == -1 else asked for asked, kept in zip(sizes, own, strict=True))]

    return rule


def permuted(x: str, order: str) -> Rule:
    """Return the rule: the dims in another order."""

    def rule(known: KnownDims) -> list[Dims]:
        dims = known.dims(x)
        return [tuple(dims[axis] for axis in known.sizes(order) if isinstance(axis, int))]

    return rule


def transposed(x: str, first: str, second: str) -> Rule:
    """Return the rule: two dims exchanged."""

    def rule(known: KnownDims) -> list[Dims]:
        dims = list(known.dims(x))
        a, b = (_axis(known, name, len(dims)) for name in (first, second))
        dims[a], dims[b] = dims[b], dims[a]
        return [tuple(dims)]

    return rule


def unsqueezed(x: str, axis: str) -> Rule:
    """Return the rule: one more dim, of size 1."""

    def rule(known: KnownDims) -> list[Dims]:
        dims = known.dims(x)
        at = _axis(known, axis, len(dims) + 1)
        return [(*dims[:at], 1, *dims[at:])]

    return rule


def selected(x: str, axis: str) -> Rule:
    """Return the rule: one dim less."""

    def rule(known: KnownDims) -> list[Dims]:
        dims = known.dims(x)
        at = _axis(known, axis, len(dims))
        return [(*dims[:at], *dims[at + 1 :])]

    return rule


def summed(x: str, axes: str, keepdim: str) -> Rule:
    """Return the rule: the dims without some of them, or with 1 in their places."""

    def rule(known: KnownDims) -> list[Dims]:
        dims = known.dims(x)
        if not known.sizes(axes):
            return []
        gone = {normalize_dim(axis, len(dims)) for axis in known.sizes(axes) if isinstance(axis, int)}
        if known.value(keepdim) == Bool(False):
            return [tuple(size for axis, size in enumerate(dims) if axis not in gone)]
        return [tuple(1 if axis in gone else size for axis, size in enumerate(dims))]

    return rule


def padded(x: str, widths: str) -> Rule:
    """Return the rule: each dim grows by two widths, which are listed from the last dim to the first."""

    def rule(known: KnownDims) -> list[Dims]:
        dims, added = list(known.dims(x)), known.sizes(widths)
        for at, width in enumerate(added):
            axis = len(dims) - 1 - at // 2
            size = dims[axis]
            if width != 0:
                dims[axis] = size + width if isinstance(size, int) and isinstance(width, int) else known.unknown()
        return [tuple(dims)]

    return rule


def sliced(x: str, axis: str, start: str, end: str, step: str) -> Rule:
    """Return the rule: a slice from 0 has `end` elements, if `end` cannot exceed the size."""

    def rule(known: KnownDims) -> list[Dims]:
        dims = known.dims(x)
        at = _axis(known, axis, len(dims))
        if known.value(step) != Int(1) or known.value(start) not in (Int(0), Null()):
            return []
        (size,) = known.sizes(end) if not isinstance(known.value(end), Null) else (UNLIMITED,)
        if isinstance(size, int) and size >= UNLIMITED:
            return [dims]
        if size != dims[at] and not known.at_most(size, dims[at]):
            return []
        return [(*dims[:at], size, *dims[at + 1 :])]

    return rule


def convolved(x: str, weight: str, *geometry: str, transposed: str) -> Rule:
    """Return the rule of a convolution. `geometry` names stride, padding and dilation; transposed ones are unknown."""

    def rule(known: KnownDims) -> list[Dims]:
        kernel, dims = known.value(weight), known.dims(x)
        if not isinstance(kernel, TensorSpec) or known.value(transposed) != Bool(False):
            return []
        axes = len(kernel.dims) - 2
        arguments = [known.sizes(name) for name in geometry]
        each = (sizes * axes if len(sizes) == 1 else sizes for sizes in arguments)
        rows = zip(dims[len(dims) - axes :], kernel.dims[2:], *each, strict=True)
        extents = (_extent(known, size, kernel, stride, (p, p), d) for size, kernel, stride, p, d in rows)
        return [(*dims[: len(dims) - axes - 1], kernel.dims[0], *extents)]

    return rule


def convolved_images(x: str, channels: str, *geometry: str, transposed: str) -> Rule:
    """Return the rule of a convolution of (N, H, W, C) to the size of `channels`; transposed ones are unknown.

    `geometry` names kernel size, stride, padding (top, left, bottom, right) and dilation.
    """

    def rule(known: KnownDims) -> list[Dims]:
        images, *sizes, _ = known.dims(x)
        if known.value(transposed) != Bool(False):
            return []
        kernels, strides, padding, dilations = (known.sizes(name) for name in geometry)
        sides = zip(padding[:2], padding[2:], strict=True)
        rows = zip(sizes, kernels, strides, sides, dilations, strict=True)
        return [(images, *(_extent(known, *row) for row in rows), known.dims(channels)[0])]

    return rule


def _extent(known: KnownDims, size: Dim, kernel: Dim, stride: Dim, padding: tuple[Dim, Dim], dilation: Dim) -> Dim:
    before, after = padding
    window = (kernel, stride, before, after, dilation)
    if not all(isinstance(part, int) for part in window):
        raise ValueError("the window is not constant")
    kernel, stride, before, after, dilation = (part for part in window if isinstance(part, int))
    less = dilation * (kernel - 1) - before - after  # the part of the size that the kernel covers
    if isinstance(size, int):
        return (size - less - 1) // stride + 1
    return size if (less, stride) == (0, 1) else known.derived(size, less, stride)


def _axis(known: KnownDims, name: str, rank: int) -> int:
    axis = known.value(name)
    if not isinstance(axis, Int):
        raise ValueError("the axis is not constant")
    return normalize_dim(axis.value, rank)
