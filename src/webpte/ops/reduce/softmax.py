"""Softmax and its logarithm, over any dim."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...graph import normalize_dim
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor, load_type
from ...lowering.registry import FLOATS, Unused, op
from ...lowering.shapes import strides
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, u32
from .reduce import lanes_per_row, with_subgroups, workgroup_for


class SoftmaxParams(Uniforms):
    size: u32  # loads per row
    inner: u32  # elements between neighbors along the dim
    lanes: u32


def normalized(cx: Context, x: Tensor, dim: int, out: Tensor, log: bool) -> None:
    out.dims = x.dims
    axis = normalize_dim(dim, x.rank)
    size, inner = (x.dims[axis], strides(x.dims)[axis]) if x.rank else (1, 1)
    rows = x.numel // size if size else 0
    # Rows of an inner dim are neighbors in memory: then the invocations of different rows load neighbors.
    lanes = lanes_per_row(cx, "softmax", rows, size) if inner == 1 else 1
    wide = 4 if inner == 1 and size % 4 == 0 else 1
    cx.dispatch(
        "reduce/softmax.wgsl",
        reads={"x": x},
        writes={"y": out},
        params=SoftmaxParams(size=size // wide, inner=inner, lanes=lanes),
        threads=rows * lanes,
        workgroup=workgroup_for(lanes),
        source=load_type(x, wide),
        result=load_type(out, wide),  # wider than the input where half_to_float is set
        log=log,
        lanes=lanes,
        subgroups=with_subgroups(cx, lanes),
        wide=wide,
    )


def _shifted(x: Any, dim: int) -> Any:
    """Return float64 rows whose largest element is 0. Rows with infinite maxima become NaN."""
    wide = x.astype(np.float64)
    with np.errstate(invalid="ignore"):
        return wide - (wide.max(axis=dim, keepdims=True, initial=-np.inf) if x.ndim else wide)


def _result_dtype(x: Any, half_to_float: bool) -> Any:
    return np.float32 if half_to_float else x.dtype


@op("aten._softmax.default", dtypes=FLOATS, traits=OpTraits(dims=dim_rules.like("self")))
def softmax(cx: Context, self: Tensor, dim: int, half_to_float: Unused, *, out: Tensor) -> None:
    normalized(cx, self, dim, out, log=False)


@softmax.reference
def _(self: Any, dim: int, half_to_float: bool) -> Any:
    powers = np.exp(_shifted(self, dim))
    total = powers.sum(axis=dim if self.ndim else None, keepdims=True)
    return (powers / total).astype(_result_dtype(self, half_to_float))


@op("aten._log_softmax.default", dtypes=FLOATS, traits=OpTraits(dims=dim_rules.like("self")))
def log_softmax(cx: Context, self: Tensor, dim: int, half_to_float: Unused, *, out: Tensor) -> None:
    normalized(cx, self, dim, out, log=True)


@log_softmax.reference
def _(self: Any, dim: int, half_to_float: bool) -> Any:
    shifted = _shifted(self, dim)
    total = np.exp(shifted).sum(axis=dim if self.ndim else None, keepdims=True)
    return (shifted - np.log(total)).astype(_result_dtype(self, half_to_float))
