"""Elementwise arithmetic and bit logic on two operands, with broadcasting.

Each operand is converted to the output's dtype first, so integers are computed as integers, and mixed operands as
PyTorch promotes them. A plain number in place of a tensor is a uniform.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import GraphError
from ...graph.expressions import Term
from ...lowering.context import Tensor
from ...lowering.formulas import Formula, Number
from ...lowering.integers import (
    NO_INTEGERS,
    Integers,
    added,
    divided,
    larger,
    multiplied,
    powered,
    remainder,
    smaller,
)
from ...lowering.numbers import computed, floated, is_float, promoted, rounded
from ...lowering.registry import FLOATS
from .elementwise import elementwise
from .unary import clamp_bounds, numpy_clamp

QUOTIENT, LEFT = divided("self", "other"), remainder("self", "other")  # of integers
EITHER = ("self", "other")  # a number will do for either


def _scaled(name: str, a: Tensor | Term, b: Tensor | Term, alpha: float, out: Tensor) -> Formula:
    """Return the formula of a <name> alpha * b."""
    if alpha == 1:
        return Formula(name, (a, b))
    return Formula(f"{name}_scaled", (a, b), numbers=(Number.of(alpha, out.dtype),))


@elementwise(
    "aten.add.Tensor",
    "aten.add.Scalar",
    kernels=("aten::add.out",),
    numbers=EITHER,
    integers=added("self", "other", "alpha"),
)
def add(self: Tensor, other: Tensor | Term, alpha: int | float, *, out: Tensor) -> Formula:
    return _scaled("add", self, other, alpha, out)


@add.reference
def _(self: Any, other: Any, alpha: float) -> Any:
    if promoted(self, other).kind == "b":
        return np.logical_or(self, other)  # PyTorch's sum of truth values
    return computed(lambda a, b: a + alpha * b, self, other)


@elementwise(
    "aten.sub.Tensor",
    "aten.sub.Scalar",
    kernels=("aten::sub.out",),
    numbers=EITHER,
    integers=added("self", "other", "alpha", sign=-1),
)
def sub(self: Tensor, other: Tensor | Term, alpha: int | float, *, out: Tensor) -> Formula:
    return _scaled("sub", self, other, alpha, out)


@sub.reference
def _(self: Any, other: Any, alpha: float) -> Any:
    return computed(lambda a, b: a - alpha * b, self, other)


@elementwise(
    "aten.rsub.Scalar",
    "aten.rsub.Tensor",
    numbers=EITHER,
    integers=added("other", "self", "alpha", sign=-1, checked=False),
)
def rsub(self: Tensor, other: Tensor | Term, alpha: int | float, *, out: Tensor) -> Formula:
    return _scaled("sub", other, self, alpha, out)


@rsub.reference
def _(self: Any, other: Any, alpha: float) -> Any:
    return computed(lambda a, b: b - alpha * a, self, other)


@elementwise("aten.div.Tensor", "aten.div.Scalar", kernels=("aten::div.out",), numbers=EITHER, integers=QUOTIENT)
def div(self: Tensor, other: Tensor | Term, *, out: Tensor) -> Formula:
    return Formula("div", (self, other))


def _true_quotient(a: Any, b: Any) -> Any:
    return computed(np.true_divide, a, b, dtype=floated(promoted(a, b)))


def _refuse_zeros(a: Any, b: Any) -> None:
    if a.dtype.kind != "f" and not np.all(b):
        raise ZeroDivisionError("an integer divided by zero")  # NumPy returns 0


def _floored_quotient(a: Any, b: Any) -> Any:
    _refuse_zeros(a, b)
    return np.floor_divide(a, b)


def _truncated_quotient(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    return (a - _truncated_remainder(a, b)) // b  # which divides exactly; the smallest integer has no absolute value


def _truncated_remainder(a: Any, b: Any) -> Any:
    _refuse_zeros(a, b)
    return np.fmod(a, b)


def _remainder(a: Any, b: Any) -> Any:
    """Return the remainder with the sign of the divisor. A zero keeps the sign of the dividend, as in PyTorch."""
    rest = _truncated_remainder(a, b)
    return np.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


div.reference(_true_quotient)

# rounding_mode -> the formula and its reference in wide arithmetic
_ROUNDED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "floor": ("div_floor", _floored_quotient),
    "trunc": ("div_trunc", _truncated_quotient),
}


@elementwise(
    "aten.div.Tensor_mode",
    "aten.div.Scalar_mode",
    kernels=("aten::div.out_mode",),
    numbers=EITHER,
    integers=QUOTIENT,
)
def div_mode(self: Tensor, other: Tensor | Term, rounding_mode: str | None, *, out: Tensor) -> Formula:
    if rounding_mode is not None and rounding_mode not in _ROUNDED:
        raise GraphError(
            argument="rounding_mode",
            expected=f"one of {', '.join(_ROUNDED)}",
            got=repr(rounding_mode),
            code="unknown_choice",
        )
    return Formula("div" if rounding_mode is None else _ROUNDED[rounding_mode][0], (self, other))


@div_mode.reference
def _(self: Any, other: Any, rounding_mode: str | None) -> Any:
    if rounding_mode is None:
        return _true_quotient(self, other)
    return computed(_ROUNDED[rounding_mode][1], self, other)


def _register(
    name: str,
    function: Callable[[Any, Any], Any],
    *names: str,
    kernels: tuple[str, ...] = (),
    narrow: bool = False,
    numbers: tuple[str, ...] = (),
    integers: Integers = NO_INTEGERS,
) -> None:
    """Register an op of two operands. `narrow` rounds a number beside halves to a half, as PyTorch does."""

    @elementwise(*names, kernels=kernels, numbers=numbers, integers=integers)
    def describe(self: Tensor, other: Tensor | Term, *, out: Tensor) -> Formula:
        if narrow and not isinstance(other, Tensor):
            other = rounded(other, out.dtype)
        return Formula(name, (self, other))

    @describe.reference
    def _(self: Any, other: Any) -> Any:
        dtype = promoted(self, other)
        if narrow and dtype == np.float16 and not isinstance(other, np.ndarray):
            other = float(np.float16(other))
        return computed(function, self, other, dtype=dtype)


_register(
    "mul",
    np.multiply,
    "aten.mul.Tensor",
    "aten.mul.Scalar",
    kernels=("aten::mul.out",),
    numbers=EITHER,
    integers=multiplied("self", "other"),
)
_register("div_floor", _floored_quotient, "aten.floor_divide.default", "aten.floor_divide.Scalar", integers=QUOTIENT)
_register("minimum", np.minimum, "aten.minimum.default", numbers=EITHER, integers=smaller("self", "other"))
_register("maximum", np.maximum, "aten.maximum.default", numbers=EITHER, integers=larger("self", "other"))
_register("remainder", _remainder, "aten.remainder.Tensor", "aten.remainder.Scalar", narrow=True, integers=LEFT)
_register("fmod", _truncated_remainder, "aten.fmod.Tensor", "aten.fmod.Scalar", narrow=True, integers=LEFT)
_register("and", np.bitwise_and, "aten.bitwise_and.Tensor", "aten.bitwise_and.Scalar")
_register("or", np.bitwise_or, "aten.bitwise_or.Tensor", "aten.bitwise_or.Scalar")
_register("xor", np.bitwise_xor, "aten.bitwise_xor.Tensor", "aten.bitwise_xor.Scalar")


def _power(a: Any, b: Any) -> Any:
    if a.dtype.kind == "f":
        return np.power(a, b)
    # The inverse of an integer is 1, -1 or 0.
    inverse = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, inverse, np.power(a, np.maximum(b, 0)))


@elementwise(
    "aten.pow.Tensor_Scalar",
    "aten.pow.Tensor_Tensor",
    numbers=("self", "exponent"),
    integers=powered("self", "exponent"),
)
def power(self: Tensor, exponent: Tensor | Term, *, out: Tensor) -> Formula:
    if isinstance(exponent, (int, float)) and is_float(out) and abs(exponent) == 0.5:
        return Formula("sqrt" if exponent > 0 else "rsqrt", (self,))  # PyTorch does so: it matters for -0 and -inf
    return Formula("pow", (self, exponent))


@power.reference
def _(self: Any, exponent: Any) -> Any:
    if isinstance(exponent, float) and abs(exponent) == 0.5:
        return computed(lambda x, e: np.sqrt(x) if exponent > 0 else 1 / np.sqrt(x), self, exponent)
    return computed(_power, self, exponent)


@elementwise("aten.pow.Scalar", integers=powered("self", "exponent"))
def power_of_number(self: Term, exponent: Tensor, *, out: Tensor) -> Formula:
    return Formula("pow", (self, exponent))


@power_of_number.reference
def _(self: float, exponent: Any) -> Any:
    return computed(_power, self, exponent)


@elementwise("aten.remainder.Scalar_Tensor", integers=LEFT)
def remainder_of_number(self: Term, other: Tensor, *, out: Tensor) -> Formula:
    return Formula("remainder", (rounded(self, out.dtype), other))


@remainder_of_number.reference
def _(self: float, other: Any) -> Any:
    dtype = promoted(self, other)
    number = float(np.float16(self)) if dtype == np.float16 else self
    return computed(_remainder, number, other, dtype=dtype)


# -- arithmetic with a clamp -------------------------------------------------------------------------------------------


# ExecuTorch 1.0 fuses relu, hardtanh and clamp into the arithmetic before them. Later releases do not. Only floats are
# accepted: after the clamp, an overflow of an integer sum cannot be detected. The operator in WGSL, and its reference:
_CLAMPED: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("+", np.add),
    "sub": ("-", np.subtract),
    "mul": ("*", np.multiply),
    "div": ("/", np.true_divide),
}


def _clamp(value: str) -> str:
    """Return WGSL that clamps an f32 to the bounds c and d, which are order keys. NaN stays NaN, as in PyTorch."""
    return f"select(from_order_key(min(max(order_key({value}), c), d)), {value}, is_nan({value}))"


def _register_clamped(name: str, operator: str, function: Callable[[Any, Any], Any]) -> None:
    @elementwise(f"et_vk.binary_{name}_with_clamp.default", dtypes=FLOATS, numbers=("other",))
    def after(
        input: Tensor,
        other: Tensor | Term,
        output_min: int | float | None,
        output_max: int | float | None,
        *,
        out: Tensor,
    ) -> Formula:
        code = _clamp(f"(a {operator} b)")
        return Formula(f"{name}_clamp", (input, other), numbers=clamp_bounds(output_min, output_max, out), code=code)

    @after.reference
    def _(input: Any, other: Any, low: float | None, high: float | None) -> Any:
        return computed(lambda a, b: numpy_clamp(function(a, b), low, high), input, other)

    @elementwise(f"et_vk.clamp_with_binary_{name}.default", dtypes=FLOATS, numbers=("other",))
    def before(
        input: Tensor,
        output_min: int | float | None,
        output_max: int | float | None,
        other: Tensor | Term,
        *,
        out: Tensor,
    ) -> Formula:
        code = f"{_clamp('a')} {operator} b"
        return Formula(f"clamp_{name}", (input, other), numbers=clamp_bounds(output_min, output_max, out), code=code)

    @before.reference
    def _(input: Any, low: float | None, high: float | None, other: Any) -> Any:
        return computed(lambda a, b: function(numpy_clamp(a, low, high), b), input, other)


for _name, _operation in _CLAMPED.items():
    _register_clamped(_name, *_operation)
