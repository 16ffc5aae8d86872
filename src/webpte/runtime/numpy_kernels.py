"""NumPy versions of kernel calls that have no op of ours: what a program then runs on the CPU with no torch installed.

Arguments are those of the out-variant's schema, in order and without the outs; a kernel returns its output or a tuple.
The caller casts to the dtypes the program declares.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Kernel = Callable[..., Any]

KERNELS: dict[str, Kernel] = {}


def kernel(*names: str) -> Callable[[Kernel], Kernel]:
    """Register a function under the names it has in a file."""

    def register(fn: Kernel) -> Kernel:
        KERNELS.update(dict.fromkeys(names, fn))
        return fn

    return register


@kernel("aten::cumsum.out")
def cumsum(self: Array, dim: int, dtype: object) -> Array:
    return np.cumsum(self, axis=dim)


@kernel("aten::topk.values")
def topk(self: Array, k: int, dim: int, largest: bool, sorted_: bool) -> tuple[Array, Array]:
    keys = -self if largest else self
    order = np.argsort(keys, axis=dim, kind="stable").take(range(k), axis=dim)
    return np.take_along_axis(self, order, axis=dim), order


@kernel("aten::as_strided_copy.out")
def as_strided_copy(self: Array, size: list[int], stride: list[int], storage_offset: int | None) -> Array:
    """Elements of the flattened array at `storage_offset` plus multiples of the strides, which count elements."""
    positions = np.full((), storage_offset or 0, np.int64)
    for count, step in zip(size, stride, strict=True):
        positions = positions[..., None] + np.arange(count) * step
    return np.asarray(self.reshape(-1)[positions])
