"""Whether 32-bit integers were enough for a call whose integers have 64 bits in the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GraphError
from ...graph import CHECK_FLAGS, numel
from ...graph.names import OVERFLOW
from ...lowering.context import Context, Tensor
from ...lowering.numbers import INT32_HIGH, INT32_LOW
from ...lowering.registry import Unused, op
from ...lowering.shapes import broadcast, broadcast_strides, check_rank, coalesce
from ...wgsl import Uniforms, dims8, i32, u32


class OverflowParams(Uniforms):
    count: u32
    first: i32  # the operands, where they are numbers
    second: i32
    alpha: i32
    rank: u32
    dims: dims8
    a_strides: dims8
    b_strides: dims8


@op(OVERFLOW)
def overflow(
    cx: Context, kind: str, self: Tensor | int, other: Tensor | int, alpha: int, called: Unused, *, out: Tensor
) -> None:
    """Check whether 32-bit integers suffice for an op. `called` is its name, for messages."""
    if kind not in _EXACT:
        raise GraphError(argument="kind", expected=f"one of {', '.join(_EXACT)}", got=repr(kind), code="unknown_choice")
    tensors = {f"{name}_data": t for name, t in (("a", self), ("b", other)) if isinstance(t, Tensor)}
    whole = broadcast(*(tensor.dims for tensor in tensors.values()))
    layouts = [
        broadcast_strides(operand.dims, whole) if isinstance(operand, Tensor) else (0,) * len(whole)
        for operand in (self, other)
    ]
    dims, (a_strides, b_strides) = coalesce(whole, *layouts)
    check_rank(dims)
    count = numel(whole)
    out.dims = (min(count, out.bound[0]),)
    first, second = (0 if isinstance(operand, Tensor) else operand for operand in (self, other))
    cx.dispatch(
        "elementwise/overflow.wgsl",
        reads=tensors,
        writes={"y": out},
        params=OverflowParams(
            count=count,
            first=first,
            second=second,
            alpha=alpha,
            rank=len(dims),
            dims=dims,
            a_strides=a_strides,
            b_strides=b_strides,
        ),
        threads=out.numel,
        kind=kind,
        a_type=_stored(self),
        b_type=_stored(other),
    )


def _stored(operand: Tensor | int) -> str | None:
    return operand.wgsl if isinstance(operand, Tensor) else None


def _quotient(a: int, b: int, alpha: int) -> int | None:
    return None if b == 0 else a // b


def _power(a: int, b: int, alpha: int) -> int | None:
    if b < 0 or abs(a) < 2:
        return 0
    return a**b if b < 32 else None


def _whole(a: float, b: int, alpha: int) -> int:
    return int(a) if np.isfinite(a) else 0  # no integer in the model either


# The results in 64 bits; None if there is none.
_EXACT: dict[str, Callable[[Any, Any, int], int | None]] = {
    "add": lambda a, b, alpha: a + alpha * b,
    "mul": lambda a, b, alpha: a * b,
    "pow": _power,
    "div": _quotient,
    "cast": _whole,
}


@overflow.reference
def _(kind: str, self: Any, other: Any, alpha: int, called: object) -> Any:
    first, second = np.broadcast_arrays(self, other)
    flags = np.zeros(min(first.size, CHECK_FLAGS), np.int32)
    pairs = zip(first.reshape(-1).tolist(), second.reshape(-1).tolist(), strict=True)
    for i, (a, b) in enumerate(pairs):
        exact = _EXACT[kind](a, b, alpha)
        if exact is None or not INT32_LOW <= exact <= INT32_HIGH:
            flags[i % len(flags)] = 1
    return flags
