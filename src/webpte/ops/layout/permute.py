"""Dims in another order."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import ShapeError
from ...graph import normalize_dim
from ...lowering import dim_rules
from ...lowering.context import Context, Tensor
from ...lowering.integers import all_of
from ...lowering.registry import MOVABLE, op
from ...lowering.shapes import strides
from ...lowering.traits import OpTraits
from .copy import copy_into
from .strided import gather


def reorder(cx: Context, x: Tensor, order: list[int], out: Tensor) -> None:
    """Copy `x` to `out`, whose dim d is dim order[d] of `x`."""
    if sorted(order) != list(range(x.rank)):
        raise ShapeError(
            argument="dims",
            expected=f"a permutation of the {x.rank} dims of {list(x.dims)}",
            got=order,
            code="invalid_permutation",
        )
    out.dims = tuple(x.dims[d] for d in order)
    moving = [d for d in order if x.bound[d] != 1]
    if moving == sorted(moving):
        copy_into(cx, x, out)  # only dims that are 1 at every live shape change places
        return
    own = strides(x.dims)
    gather(cx, x, out, tuple(own[d] for d in order))


@op(
    "aten.permute_copy.default",
    "aten.permute.default",
    dtypes=MOVABLE,
    traits=OpTraits(dims=dim_rules.permuted("self", "dims"), integers=all_of("self")),
)
def permute(cx: Context, self: Tensor, dims: list[int], *, out: Tensor) -> None:
    reorder(cx, self, [normalize_dim(d, self.rank) for d in dims], out)


@permute.reference
def _(self: Any, dims: list[int]) -> Any:
    return self.transpose(dims)


@op(
    "aten.transpose_copy.int",
    dtypes=MOVABLE,
    traits=OpTraits(dims=dim_rules.transposed("self", "dim0", "dim1"), integers=all_of("self")),
)
def transpose_copy(cx: Context, self: Tensor, dim0: int, dim1: int, *, out: Tensor) -> None:
    order = list(range(self.rank))
    if self.rank:
        a, b = normalize_dim(dim0, self.rank), normalize_dim(dim1, self.rank)
        order[a], order[b] = b, a
    reorder(cx, self, order, out)


@transpose_copy.reference
def _(self: Any, dim0: int, dim1: int) -> Any:
    return np.swapaxes(self, dim0, dim1) if self.ndim else self


@op("aten.t_copy.default", dtypes=MOVABLE, traits=OpTraits(integers=all_of("self")))
def t_copy(cx: Context, self: Tensor, *, out: Tensor) -> None:
    if self.rank > 2:
        raise ShapeError(argument="input", expected="at most 2 dims", got=list(self.dims), code="rank")
    reorder(cx, self, list(range(self.rank))[::-1], out)


@t_copy.reference
def _(self: Any) -> Any:
    return self.T
