"""Whether positions that the device has computed are inside the dim that they index."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import CHECK_FLAGS, normalize_dim
from ...graph.names import INDEX_CHECK
from ...lowering.context import Context, Tensor
from ...lowering.registry import MOVABLE, Unused, op
from ...wgsl import Uniforms, i32, u32


class IndexCheckParams(Uniforms):
    count: u32
    low: i32
    size: i32


@op(INDEX_CHECK, dtypes=MOVABLE)  # of the tensor only its dims count
def index_check(
    cx: Context, index: Tensor, tensor: Tensor, dim: int, from_end: bool, called: Unused, *, out: Tensor
) -> None:
    """Write the positions outside of a dim of `tensor`, and 0 for the others. `called` is for messages.

    Every result has one position, or the last of several that is wrong. A wrong position is never 0.
    """
    low, size = _limits(tensor.dims, dim, from_end)
    count = index.numel
    out.dims = (min(count, CHECK_FLAGS),)
    cx.dispatch(
        "indexing/index_check.wgsl",
        reads={"index": index},
        writes={"y": out},
        params=IndexCheckParams(count=count, low=low, size=size),
        threads=out.numel,
    )


def _limits(dims: tuple[int, ...], dim: int, from_end: bool) -> tuple[int, int]:
    """Return the lowest position, and the first that is too high. A tensor without dims has one element."""
    size = dims[normalize_dim(dim, len(dims))] if dims else 1
    return (-size if from_end else 0), size


@index_check.reference
def _(index: Any, tensor: Any, dim: int, from_end: bool, called: object) -> Any:
    low, size = _limits(tensor.shape, dim, from_end)
    flat = np.asarray(index).reshape(-1)
    wrong = np.zeros(min(flat.size, CHECK_FLAGS), np.int32)
    for i in np.flatnonzero((flat < low) | (flat >= size)):
        wrong[i % len(wrong)] = flat[i]
    return wrong
