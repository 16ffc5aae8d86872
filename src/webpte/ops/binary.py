"""Elementwise arithmetic and bit logic on two operands, with broadcasting.

Each operand is converted to the output's dtype first, so integers are computed as integers, and mixed operands as
PyTorch promotes them. A plain number in place of a tensor is a uniform.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import GraphError
from ..wgsl import Live, LiveInt, Uniforms, dims8, f32, i32, u32
from .broadcasting import walk
from .context import Context, Tensor
from .numbers import bits_of, computed, floated, is_float, promoted, saturated
from .registry import op
from .shapes import broadcast

Operand = Tensor | int | float


class Binary(Uniforms):
    rank: u32
    alpha: f32
    alpha_int: i32
    other: Live  # the bits of a number operand
    dims: dims8
    a_strides: dims8
    b_strides: dims8


def elementwise(
    cx: Context, name: str, a: Tensor, b: Operand, out: Tensor, alpha: float = 1, swapped: bool = False
) -> None:
    """out = a <name> alpha * b, or b <name> alpha * a if swapped, which lets the number come first."""
    tensors = (a, b) if isinstance(b, Tensor) else (a,)
    out.dims = broadcast(*(t.dims for t in tensors))
    walked = walk(out, *tensors)
    params = Binary(
        rank=walked.rank,
        alpha=float(alpha),
        alpha_int=saturated(alpha),
        other=LiveInt(0, -1) if isinstance(b, Tensor) else cx.live("other", bits_of(b, is_float(out))),
        dims=walked.dims,
        a_strides=walked.layouts[0],
        b_strides=walked.layouts[-1],
    )
    cx.dispatch(
        "binary.wgsl",
        reads=tensors,
        writes=(out,),
        params=params,
        threads=out.numel,
        name=name,
        a=a.dtype.short,
        b=b.dtype.short if isinstance(b, Tensor) else "number",
        out=out.dtype.short,
        flat=walked.flat,
        swapped=swapped,
    )


@op("aten.add.Tensor", "aten.add.Scalar", kernels=("aten::add.out",))
def add(cx: Context, self: Tensor, other: Tensor | int | float, alpha: int | float, *, out: Tensor) -> None:
    elementwise(cx, "add", self, other, out, alpha)


@add.reference
def _(self: Any, other: Any, alpha: float) -> Any:
    if promoted(self, other).kind == "b":
        return np.logical_or(self, other)  # PyTorch's sum of truth values
    return computed(lambda a, b: a + alpha * b, self, other)


@op("aten.sub.Tensor", "aten.sub.Scalar", kernels=("aten::sub.out",))
def sub(cx: Context, self: Tensor, other: Tensor | int | float, alpha: int | float, *, out: Tensor) -> None:
    elementwise(cx, "sub", self, other, out, alpha)


@sub.reference
def _(self: Any, other: Any, alpha: float) -> Any:
    return computed(lambda a, b: a - alpha * b, self, other)


@op("aten.rsub.Scalar", "aten.rsub.Tensor")
def rsub(cx: Context, self: Tensor, other: Tensor | int | float, alpha: int | float, *, out: Tensor) -> None:
    elementwise(cx, "sub", self, other, out, alpha, swapped=True)


@rsub.reference
def _(self: Any, other: Any, alpha: float) -> Any:
    return computed(lambda a, b: b - alpha * a, self, other)


@op("aten.div.Tensor", "aten.div.Scalar", kernels=("aten::div.out",))
def div(cx: Context, self: Tensor, other: Tensor | int | float, *, out: Tensor) -> None:
    elementwise(cx, "div", self, other, out)


def _true_quotient(a: Any, b: Any) -> Any:
    return computed(np.true_divide, a, b, dtype=floated(promoted(a, b)))


def _truncated_quotient(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    return np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b))


div.reference(_true_quotient)

# rounding_mode -> the kernel's name for it and its reference in wide arithmetic
_ROUNDED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "floor": ("div_floor", np.floor_divide),
    "trunc": ("div_trunc", _truncated_quotient),
}


@op("aten.div.Tensor_mode", "aten.div.Scalar_mode", kernels=("aten::div.out_mode",))
def div_mode(cx: Context, self: Tensor, other: Tensor | int | float, rounding_mode: str | None, *, out: Tensor) -> None:
    if rounding_mode is not None and rounding_mode not in _ROUNDED:
        raise GraphError(f"rounding_mode {rounding_mode!r} is none of {', '.join(_ROUNDED)}")
    elementwise(cx, "div" if rounding_mode is None else _ROUNDED[rounding_mode][0], self, other, out)


@div_mode.reference
def _(self: Any, other: Any, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return _true_quotient(self, other)
    return computed(_ROUNDED[rounding_mode][1], self, other)


def _register(name: str, function: Callable[[Any, Any], Any], *names: str, kernels: tuple[str, ...] = ()) -> None:
    """An op of two operands and nothing else."""

    @op(*names, kernels=kernels)
    def lower(cx: Context, self: Tensor, other: Tensor | int | float, *, out: Tensor) -> None:
        elementwise(cx, name, self, other, out)

    @lower.reference
    def _(self: Any, other: Any) -> Any:
        return computed(function, self, other)


_register("mul", np.multiply, "aten.mul.Tensor", "aten.mul.Scalar", kernels=("aten::mul.out",))
_register("div_floor", np.floor_divide, "aten.floor_divide.default", "aten.floor_divide.Scalar")
_register("minimum", np.minimum, "aten.minimum.default")
_register("maximum", np.maximum, "aten.maximum.default")
_register("remainder", np.remainder, "aten.remainder.Tensor", "aten.remainder.Scalar")
_register("fmod", np.fmod, "aten.fmod.Tensor", "aten.fmod.Scalar")
_register("and", np.bitwise_and, "aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar")
_register("or", np.bitwise_or, "aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar")
_register("xor", np.bitwise_xor, "aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar")


def _power(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return np.power(a, b)
    # What is left of an inverse: 1, -1 or nothing.
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


@op("aten.pow.Tensor_Scalar", "aten.pow.Tensor_Tensor")
def power(cx: Context, self: Tensor, exponent: Tensor | int | float, *, out: Tensor) -> None:
    elementwise(cx, "pow", self, exponent, out)


@power.reference
def _(self: Any, exponent: Any) -> Any:
    return computed(_power, self, exponent)


@op("aten.pow.Scalar")
def power_of_number(cx: Context, self: int | float, exponent: Tensor, *, out: Tensor) -> None:
    elementwise(cx, "pow", exponent, self, out, swapped=True)


@power_of_number.reference
def _(self: float, exponent: Any) -> Any:
    return computed(_power, self, exponent)


@op("aten.remainder.Scalar_Tensor")
def remainder_of_number(cx: Context, self: int | float, other: Tensor, *, out: Tensor) -> None:
    elementwise(cx, "remainder", other, self, out, swapped=True)


@remainder_of_number.reference
def _(self: float, other: Any) -> Any:
    return computed(np.remainder, self, other)
