"""Integers and other scalars that change from call to call. All of it happens on the host."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ..errors import ShapeError
from ..graph import ITEM, normalize_dim
from .context import Context, LiveScalar, Tensor
from .registry import MOVABLE, op


@op("sym_size.int", kernels=("aten::sym_size.int",), dtypes=MOVABLE)
def sym_size(cx: Context, self: Tensor, dim: int, *, out: LiveScalar) -> None:
    out.set(self.dims[normalize_dim(dim, self.rank)])


@op("sym_numel", kernels=("aten::sym_numel",), dtypes=MOVABLE)
def sym_numel(cx: Context, self: Tensor, *, out: LiveScalar) -> None:
    out.set(self.numel)


@op("et_vk.select_as_symint.default", host=("x",))
def select_as_symint(cx: Context, x: Tensor, dim: int, index: int, *, out: LiveScalar) -> None:
    axis = normalize_dim(dim, x.rank)
    size = x.dims[axis]
    if not -size <= index < size:
        raise ShapeError(f"index {index} is outside dim {dim} of value {x.id}, which has {size} elements")
    position = [0] * x.rank  # the other dims are pinned to their first element
    position[axis] = index % size
    out.set(_number(cx.host(x)[tuple(position)]))


@op("_local_scalar_dense", kernels=(ITEM,), host=("self",))
def item(cx: Context, self: Tensor, *, out: LiveScalar) -> None:
    if self.numel != 1:
        raise ShapeError(f"value {self.id} has {self.numel} elements; only one can become a number")
    out.set(_number(cx.host(self).reshape(-1)[0]))


def _number(element: Any) -> Any:
    """By the array's declared dtype: never guessed from bytes."""
    return element.item()


def _binary(function: Callable[[Any, Any], Any], *names: str, kernel: str) -> None:
    @op(*names, kernels=(f"executorch_prim::{kernel}.Scalar",))
    def lower(cx: Context, a: LiveScalar, b: LiveScalar, *, out: LiveScalar) -> None:
        left, right = a.value, b.value
        if right == 0 and kernel in ("floordiv", "truediv", "mod"):
            if not (cx.building and b.derived):
                raise ShapeError(f"{kernel} of {left} by zero")
            right = 1
        out.set(function(left, right))


for _name, _function in {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "truediv": operator.truediv,
    "mod": operator.mod,
    "eq": operator.eq,
    "ge": operator.ge,
    "gt": operator.gt,
    "le": operator.le,
    "lt": operator.lt,
}.items():
    _binary(_function, _name, kernel=_name)
_binary(max, kernel="sym_max")
_binary(min, kernel="sym_min")


def _unary(function: Callable[[Any], Any], kernel: str) -> None:
    @op(kernels=(f"executorch_prim::{kernel}.Scalar",))
    def lower(cx: Context, a: LiveScalar, *, out: LiveScalar) -> None:
        out.set(function(a.value))


_UNARY: dict[str, Callable[[Any], Any]] = {
    "neg": operator.neg,
    "ceil": math.ceil,
    "round": round,
    "trunc": math.trunc,
    "sym_float": float,
    "sym_int": int,
    "sym_not": operator.not_,
}
for _name, _single in _UNARY.items():
    _unary(_single, _name)


@op(kernels=("executorch_prim::sym_ite.Scalar",))
def sym_ite(cx: Context, condition: LiveScalar, a: LiveScalar, b: LiveScalar, *, out: LiveScalar) -> None:
    out.set(a.value if condition.value else b.value)
