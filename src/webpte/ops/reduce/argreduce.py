"""Where the extremes are: argmax and argmin, and max and min along one dim. The first of equal elements wins."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import normalize_dim
from ...lowering.context import Context, Tensor
from ...lowering.integers import position_along
from ...lowering.registry import op
from ...lowering.shapes import reduced, strides
from ...lowering.traits import OpTraits
from ...wgsl import Uniforms, u32
from .reduce import lanes_per_row, with_subgroups, workgroup_for


class ArgReduceParams(Uniforms):
    size: u32
    inner: u32  # elements between neighbors along the reduced dim
    lanes: u32  # invocations that share an output


def arg_reduce(
    cx: Context, largest: bool, x: Tensor, dim: int | None, keepdim: bool, indices: Tensor, values: Tensor | None = None
) -> None:
    """Write the index of the extreme along `dim` (None: of the flattened tensor), and on request its value."""
    axes = set(range(x.rank)) if dim is None else {normalize_dim(dim, x.rank)}
    indices.dims = reduced(x.dims, axes, keepdim)
    if dim is None or x.rank == 0:
        size, inner = x.numel, 1
    else:
        (axis,) = axes
        size, inner = x.dims[axis], strides(x.dims)[axis]
    if size == 0:
        where = "at all" if dim is None else f"along dim {dim}"
        raise ShapeError(
            f"{list(x.dims)} has no elements {where}: there is no {'maximum' if largest else 'minimum'}", code="empty"
        )
    if values is not None:
        values.dims = indices.dims
    lanes = lanes_per_row(cx, "extreme", indices.numel, size)
    cx.dispatch(
        "reduce/argreduce.wgsl",
        reads={"x": x},
        writes={"values": values, "indices": indices},
        params=ArgReduceParams(size=size, inner=inner, lanes=lanes),
        threads=indices.numel * lanes,
        workgroup=workgroup_for(lanes),
        type=x.wgsl,
        lanes=lanes,
        subgroups=with_subgroups(cx, lanes),
        largest=largest,
        with_values=values is not None,
    )


@op("aten.argmax.default", traits=OpTraits(integers=position_along("self", "dim")))
def argmax(cx: Context, self: Tensor, dim: int | None, keepdim: bool, *, out: Tensor) -> None:
    arg_reduce(cx, True, self, dim, keepdim, out)


@argmax.reference
def _(self: Any, dim: int | None, keepdim: bool) -> Any:
    return np.argmax(self, axis=dim if self.ndim else None, keepdims=keepdim)


@op("aten.argmin.default", traits=OpTraits(integers=position_along("self", "dim")))
def argmin(cx: Context, self: Tensor, dim: int | None, keepdim: bool, *, out: Tensor) -> None:
    arg_reduce(cx, False, self, dim, keepdim, out)


@argmin.reference
def _(self: Any, dim: int | None, keepdim: bool) -> Any:
    return np.argmin(self, axis=dim if self.ndim else None, keepdims=keepdim)


@op("aten.max.dim", kernels=("aten::max.dim_max",))
def max_dim(cx: Context, self: Tensor, dim: int, keepdim: bool, *, out: tuple[Tensor, Tensor]) -> None:
    values, indices = out
    arg_reduce(cx, True, x=self, dim=dim, keepdim=keepdim, indices=indices, values=values)


@max_dim.reference
def _(self: Any, dim: int, keepdim: bool) -> Any:
    return _element_at(self, np.argmax, dim, keepdim)


@op("aten.min.dim", kernels=("aten::min.dim_min",))
def min_dim(cx: Context, self: Tensor, dim: int, keepdim: bool, *, out: tuple[Tensor, Tensor]) -> None:
    values, indices = out
    arg_reduce(cx, False, x=self, dim=dim, keepdim=keepdim, indices=indices, values=values)


@min_dim.reference
def _(self: Any, dim: int, keepdim: bool) -> Any:
    return _element_at(self, np.argmin, dim, keepdim)


def _element_at(x: Any, position: Callable[..., Any], dim: int, keepdim: bool) -> tuple[Any, Any]:
    """Return the elements at the positions of the extremes, and the positions: 0 and -0 are equal, NaN comes first."""
    if x.ndim == 0:
        return x.copy(), np.zeros((), np.int64)
    indices = position(x, axis=dim, keepdims=True)
    values = np.take_along_axis(x, indices, axis=dim)
    return (values, indices) if keepdim else (values.squeeze(dim), indices.squeeze(dim))
