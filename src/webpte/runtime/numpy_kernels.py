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


@kernel("aten::topk.values")
def topk(self: Array, k: int, dim: int, largest: bool, sorted_: bool) -> tuple[Array, Array]:
    keys = -self if largest else self
    order = np.argsort(keys, axis=dim, kind="stable").take(range(k), axis=dim)
    return np.take_along_axis(self, order, axis=dim), order
