"""Reductions over any set of dims: sum, mean, product, extremes, variance."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import GraphError, ShapeError
from ...graph import DType, normalize_dim, numel
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.integers import UNKNOWN, elements_of, summed
from ...lowering.registry import FLOATS, Unused, op
from ...lowering.shapes import MAX_RANK, Dims, axes_of, coalesce, reduced, strides
from ...lowering.traits import OpTraits
from ...lowering.variants import ANYWHERE, Variant
from ...wgsl import Uniforms, dims8, f32, u32

MAX_SHARED_ROWS = 4  # as in decoding: a CPU, which runs eight invocations at once, then shares a row among them
LONG_ROW = 64  # minimum elements of a row that several invocations share
ALONE, BY_8, BY_64 = (Variant(name, ANYWHERE, n, name) for name, n in (("alone", 1), ("by 8", 8), ("by 64", 64)))


def lanes_per_row(cx: Context, family: str, rows: int, columns: int) -> int:
    """Return the number of invocations that share a row of `columns` elements: 1, or a workgroup."""
    few = rows <= MAX_SHARED_ROWS
    return _lanes(cx, family, columns, few=few, key=("few rows" if few else "many rows",))


def lanes_per_any_row(cx: Context, family: str, columns: int) -> int:
    """Return the same for any number of rows, so that a row's bits do not depend on the others."""
    return _lanes(cx, family, columns, few=True, key=())


def _lanes(cx: Context, family: str, columns: int, few: bool, key: tuple[str, ...]) -> int:
    long = columns >= LONG_ROW
    cpu = (BY_8, ALONE) if few and long else (ALONE, BY_8)
    gpu = (BY_64, BY_8, ALONE) if long else (ALONE, BY_8, BY_64)
    return cx.variant(family, (columns, *key), cpu=cpu, gpu=gpu).config


def with_subgroups(cx: Context, lanes: int) -> bool:
    """Return whether the invocations of a row combine their values by subgroup operations: on GPUs that have them."""
    return cx.caps.kind == "gpu" and cx.caps.subgroup > 0 and lanes >= BY_64.config


def workgroup_for(lanes: int) -> int:
    """Return the workgroup size: the invocations of a row, or of eight rows."""
    return lanes if lanes > 1 else 8


class ReductionParams(Uniforms):
    """How to walk the input: the kept dims give the output index, the reduced ones its elements."""

    rank: u32  # of the kept dims
    outer_rank: u32  # of the reduced dims but the innermost
    outer: u32  # elements of those
    inner: u32  # the innermost reduced dim
    inner_stride: u32
    divisor: f32  # of a mean or a variance
    lanes: u32  # invocations that share an output
    dims: dims8
    strides: dims8
    outer_dims: dims8
    outer_strides: dims8


def walk(dims: Dims, axes: set[int], divisor: float, lanes: int = 1) -> ReductionParams:
    """Return the parameters that reduce a contiguous tensor of shape `dims` over `axes`."""
    own = strides(dims)
    parts = []
    for along_axes in (False, True):
        chosen = [d for d in range(len(dims)) if (d in axes) is along_axes]
        merged, (steps,) = coalesce(tuple(dims[d] for d in chosen), tuple(own[d] for d in chosen))
        if len(merged) > MAX_RANK:
            raise ShapeError(
                f"shape {list(dims)}: expected at most {MAX_RANK} separate dims, got {len(merged)}", code="rank"
            )
        parts.append((merged, steps))
    (kept, kept_steps), (walked, walked_steps) = parts
    return ReductionParams(
        rank=len(kept),
        outer_rank=max(len(walked) - 1, 0),
        outer=numel(walked[:-1]),
        inner=walked[-1] if walked else 1,
        inner_stride=walked_steps[-1] if walked else 1,
        divisor=divisor,
        lanes=lanes,
        dims=kept,
        strides=kept_steps,
        outer_dims=walked[:-1],
        outer_strides=walked_steps[:-1],
    )


def count_of(dims: Dims, axes: set[int]) -> int:
    """Return the number of elements that are reduced to one."""
    return numel(tuple(dims[d] for d in axes if d < len(dims)))


def reduce(cx: Context, name: str, x: Tensor, dim: list[int] | None, keepdim: bool, out: Tensor) -> None:
    """Compute out = <name> of x over `dim` (None: all). Without a neutral element, an empty dim raises ShapeError."""
    axes = axes_of(dim, x.rank)
    out.dims = reduced(x.dims, axes, keepdim)
    count = count_of(x.dims, axes)
    if count == 0 and name not in ("sum", "prod"):
        raise ShapeError(f"{list(x.dims)} has no elements along {dim or 'its dims'}: there is no {name}", code="empty")
    if name == "mean" and out.dtype not in FLOATS:
        raise GraphError(
            f"mean of value {x.id} {x.spec}: expected a floating-point result, got {out.dtype.short}", code="dtype"
        )
    lanes = lanes_per_row(cx, "reduction", out.numel, count)
    params = walk(x.dims, axes, count, lanes)
    cx.dispatch(
        "reduce/reduce.wgsl",
        reads={"x": x},
        writes={"y": out},
        params=params,
        threads=out.numel * lanes,
        workgroup=workgroup_for(lanes),
        name=name,
        source=x.wgsl,
        result=out.wgsl,
        lanes=lanes,
        single=params.outer_rank == 0,
    )


# -- sums and products -------------------------------------------------------------------------------------------------


def _axis(x: Any, dim: list[int] | None) -> tuple[int, ...] | None:
    """Return the dims for NumPy, where a scalar has none. In PyTorch it has one."""
    return tuple(dim) if dim and x.ndim else None


def _accumulated(x: Any, dtype: int | None) -> Any:
    """Return the input in the dtype of PyTorch's sums: 64 bits for integers and bools, unless `dtype` is set."""
    if dtype is not None:
        x = x.astype(DType.from_scalar_type(dtype).held)
    return x.astype(np.float64 if x.dtype.kind == "f" else np.int64), x.dtype if x.dtype.kind == "f" else np.int64


@op(
    "aten.sum.dim_IntList",
    kernels=("aten::sum.IntList_out",),
    traits=OpTraits(integers=summed("self"), dims=dim_rules.summed("self", "dim", "keepdim")),
)
def sum_dim(cx: Context, self: Tensor, dim: list[int] | None, keepdim: bool, dtype: Unused, *, out: Tensor) -> None:
    reduce(cx, "sum", self, dim, keepdim, out)


@sum_dim.reference
def _(self: Any, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Any:
    wide, result = _accumulated(self, dtype)
    return wide.sum(axis=_axis(self, dim), keepdims=keepdim).astype(result)


# Registered before mean.dim, whose kernel has the name that the rule would give to this one.
@op("aten.mean.default", kernels=("aten::mean.dtype_out",))
def mean(cx: Context, self: Tensor, dtype: Unused, *, out: Tensor) -> None:
    reduce(cx, "mean", self, None, False, out)


@mean.reference
def _(self: Any, dtype: int | None) -> Any:
    wide, result = _accumulated(self, dtype)
    return wide.mean().astype(result)


@op("aten.mean.dim", kernels=("aten::mean.out",))
def mean_dim(cx: Context, self: Tensor, dim: list[int] | None, keepdim: bool, dtype: Unused, *, out: Tensor) -> None:
    reduce(cx, "mean", self, dim, keepdim, out)


@mean_dim.reference
def _(self: Any, dim: list[int] | None, keepdim: bool, dtype: int | None) -> Any:
    wide, result = _accumulated(self, dtype)
    return wide.mean(axis=_axis(self, dim), keepdims=keepdim).astype(result)


@op("aten.prod.default", traits=OpTraits(integers=UNKNOWN))
def prod(cx: Context, self: Tensor, dtype: Unused, *, out: Tensor) -> None:
    reduce(cx, "prod", self, None, False, out)


@prod.reference
def _(self: Any, dtype: int | None) -> Any:
    wide, result = _accumulated(self, dtype)
    return wide.prod().astype(result)


@op("aten.prod.dim_int", kernels=("aten::prod.int_out",), traits=OpTraits(integers=UNKNOWN))
def prod_dim(cx: Context, self: Tensor, dim: int, keepdim: bool, dtype: Unused, *, out: Tensor) -> None:
    reduce(cx, "prod", self, [dim], keepdim, out)


@prod_dim.reference
def _(self: Any, dim: int, keepdim: bool, dtype: int | None) -> Any:
    wide, result = _accumulated(self, dtype)
    return wide.prod(axis=_axis(self, [dim]), keepdims=keepdim).astype(result)


# -- extremes ----------------------------------------------------------------------------------------------------------


@op("aten.amax.default", traits=OpTraits(integers=elements_of("self")))
def amax(cx: Context, self: Tensor, dim: list[int], keepdim: bool, *, out: Tensor) -> None:
    reduce(cx, "amax", self, dim, keepdim, out)


@amax.reference
def _(self: Any, dim: list[int], keepdim: bool) -> Any:
    return self.max(axis=_axis(self, dim), keepdims=keepdim)


@op("aten.amin.default", traits=OpTraits(integers=elements_of("self")))
def amin(cx: Context, self: Tensor, dim: list[int], keepdim: bool, *, out: Tensor) -> None:
    reduce(cx, "amin", self, dim, keepdim, out)


@amin.reference
def _(self: Any, dim: list[int], keepdim: bool) -> Any:
    return self.min(axis=_axis(self, dim), keepdims=keepdim)


@op("aten.max.default", kernels=("aten::max.unary_out",))
def max_all(cx: Context, self: Tensor, *, out: Tensor) -> None:
    reduce(cx, "amax", self, None, False, out)


@max_all.reference
def _(self: Any) -> Any:
    return self.max()


@op("aten.min.default", kernels=("aten::min.unary_out",))
def min_all(cx: Context, self: Tensor, *, out: Tensor) -> None:
    reduce(cx, "amin", self, None, False, out)


@min_all.reference
def _(self: Any) -> Any:
    return self.min()


# -- variance ----------------------------------------------------------------------------------------------------------


def variance(cx: Context, x: Tensor, dim: list[int] | None, correction: float, keepdim: bool, out: Tensor) -> None:
    """Compute the sum of squared differences from the mean, divided by (count - correction)."""
    axes = axes_of(dim, x.rank)
    out.dims = reduced(x.dims, axes, keepdim)
    count = count_of(x.dims, axes)
    if count <= correction:
        raise ShapeError(
            f"variance of {list(x.dims)} over {dim or 'all dims'}: expected more than {correction} "
            f"elements, got {count}",
            code="empty",
        )
    lanes = lanes_per_row(cx, "variance", out.numel, count)
    params = walk(x.dims, axes, count - correction, lanes)
    cx.dispatch(
        "reduce/variance.wgsl",
        reads={"x": x},
        writes={"y": out},
        params=params,
        threads=out.numel * lanes,
        workgroup=workgroup_for(lanes),
        type=x.wgsl,
        lanes=lanes,
        subgroups=with_subgroups(cx, lanes),
        single=params.outer_rank == 0,
    )


@op("aten.var.correction", dtypes=FLOATS)
def var_correction(
    cx: Context, self: Tensor, dim: list[int] | None, correction: int | float | None, keepdim: bool, *, out: Tensor
) -> None:
    variance(cx, self, dim, 1 if correction is None else correction, keepdim, out)


@var_correction.reference
def _(self: Any, dim: list[int] | None, correction: float | None, keepdim: bool) -> Any:
    ddof = 1 if correction is None else correction
    return np.var(self.astype(np.float64), axis=_axis(self, dim), ddof=ddof, keepdims=keepdim).astype(self.dtype)


@op("aten.var.dim", kernels=("aten::var.out",), dtypes=FLOATS)
def var_dim(cx: Context, self: Tensor, dim: list[int] | None, unbiased: bool, keepdim: bool, *, out: Tensor) -> None:
    variance(cx, self, dim, int(unbiased), keepdim, out)


@var_dim.reference
def _(self: Any, dim: list[int] | None, unbiased: bool, keepdim: bool) -> Any:
    return np.var(self.astype(np.float64), axis=_axis(self, dim), ddof=int(unbiased), keepdims=keepdim).astype(
        self.dtype
    )


# -- running sums ------------------------------------------------------------------------------------------------------


class CumsumParams(Uniforms):
    size: u32
    inner: u32  # elements between neighbors along the dim


@op("aten.cumsum.default", traits=OpTraits(integers=summed("self", running=True)))
def cumsum(cx: Context, self: Tensor, dim: int, dtype: Unused, *, out: Tensor) -> None:
    out.dims = self.dims
    axis = normalize_dim(dim, self.rank)
    size, inner = (self.dims[axis], strides(self.dims)[axis]) if self.rank else (1, 1)
    cx.dispatch(
        "reduce/cumsum.wgsl",
        reads={"x": self},
        writes={"y": out},
        params=CumsumParams(size=size, inner=inner),
        threads=self.numel // size if size else 0,
        workgroup=8,
        source=self.wgsl,
        result=out.wgsl,
    )


@cumsum.reference
def _(self: Any, dim: int, dtype: int | None) -> Any:
    wide, result = _accumulated(self, dtype)
    return (wide.cumsum(axis=dim) if self.ndim else wide).astype(result)
