"""Elementwise functions of one operand.

They compute in f32, or in i32 where the output holds integers; an integer operand of a function like sqrt is converted,
as PyTorch does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ...errors import RangeError
from ...graph import DType
from ...graph.expressions import saturate
from ...graph.names import ROUND_BF16
from ...lowering.context import Tensor
from ...lowering.formulas import Formula, Number
from ...lowering.integers import NO_INTEGERS, absolute, clamped, negated
from ...lowering.numbers import INT32_HIGH, INT32_LOW, computed, floated, is_float, order_key, promoted
from .elementwise import elementwise


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf, otypes=[np.float64])

_FLOAT_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exp": np.exp,
    "log": np.log,
    "log10": np.log10,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": _erf,
    "sigmoid": _sigmoid,
    "silu": lambda x: x * _sigmoid(x),
    "hardswish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
}
# Integers stay integers.
_ANY_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "neg": np.negative,
    "sign": lambda x: x if x.dtype.kind == "b" else np.where(np.isnan(x), 0, np.sign(x)),
    "round": lambda x: np.rint(x) if x.dtype.kind == "f" else x,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
}


_INTEGERS = {"abs": absolute("self"), "neg": negated("self")}


def _register(name: str, function: Callable[[Any], Any], floats_only: bool) -> None:
    @elementwise(f"aten.{name}.default", integers=_INTEGERS.get(name, NO_INTEGERS))
    def describe(self: Tensor, *, out: Tensor) -> Formula:
        return Formula(name, (self,))

    @describe.reference
    def _(self: Any) -> Any:
        dtype = promoted(self)
        return computed(function, self, dtype=floated(dtype) if floats_only else dtype)


for _name, _function in _FLOAT_FUNCTIONS.items():
    _register(_name, _function, True)
for _name, _function in _ANY_FUNCTIONS.items():
    _register(_name, _function, False)


@elementwise(ROUND_BF16)
def round_bf16(self: Tensor, *, out: Tensor) -> Formula:
    return Formula("round_bf16", (self,))


@round_bf16.reference
def _(self: Any) -> Any:
    return computed(DType.BFLOAT16.rounded, self)


@elementwise("aten.gelu.default")
def gelu(self: Tensor, approximate: str, *, out: Tensor) -> Formula:
    return Formula("gelu" if approximate == "none" else "gelu_tanh", (self,))


@gelu.reference
def _(self: Any, approximate: str) -> Any:
    def by_erf(x: Any) -> Any:
        return np.where(np.isinf(x), np.nan, x / 2 * (1 + _erf(x / math.sqrt(2))))  # NaN, as in PyTorch's f32 kernel

    def by_tanh(x: Any) -> Any:
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    return computed(by_erf if approximate == "none" else by_tanh, self)


@elementwise("aten.leaky_relu.default")
def leaky_relu(self: Tensor, negative_slope: float, *, out: Tensor) -> Formula:
    return Formula("leaky_relu", (self,), numbers=(Number.of(negative_slope),))


@leaky_relu.reference
def _(self: Any, negative_slope: float) -> Any:
    return computed(lambda x: np.where(x > 0, x, x * negative_slope), self)


@elementwise("aten.elu.default")
def elu(self: Tensor, alpha: int | float, scale: int | float, input_scale: int | float, *, out: Tensor) -> Formula:
    return Formula("elu", (self,), numbers=tuple(map(Number.of, (alpha, scale, input_scale))))


@elu.reference
def _(self: Any, alpha: float, scale: float, input_scale: float) -> Any:
    return computed(lambda x: scale * np.where(x > 0, x, alpha * np.expm1(x * input_scale)), self)


@elementwise("aten.hardshrink.default")
def hardshrink(self: Tensor, lambd: float, *, out: Tensor) -> Formula:
    return Formula("hardshrink", (self,), numbers=(Number.of(lambd),))


@hardshrink.reference
def _(self: Any, lambd: float) -> Any:
    # The threshold has f32 precision, like the data: an element equal to it is inside.
    return computed(lambda x: np.where(np.abs(x) <= np.float64(np.float32(lambd)), 0, x), self)


def clamp_bounds(low: float | None, high: float | None, out: Tensor) -> tuple[Number, Number]:
    """Return bounds as integers. Floats become order keys, so that infinities compare like other values."""
    key = order_key if is_float(out) else saturate
    if not is_float(out) and (saturate(low or 0) < (low or 0) or saturate(high or 0) > (high or 0)):
        raise RangeError(f"min, max: expected 32-bit integers, got {low} and {high}")
    return Number(INT32_LOW if low is None else key(low)), Number(INT32_HIGH if high is None else key(high))


def numpy_clamp(x: Any, low: float | None, high: float | None) -> Any:
    """Return x between two bounds, for references."""
    above = x if low is None else np.maximum(x, low)
    return above if high is None else np.minimum(above, high)


def _clamped(self: Tensor, low: float | None, high: float | None, out: Tensor) -> Formula:
    return Formula("clamp", (self,), numbers=clamp_bounds(low, high, out))


@elementwise("aten.relu.default")
def relu(self: Tensor, *, out: Tensor) -> Formula:
    return Formula("relu", (self,))


@relu.reference
def _(self: Any) -> Any:
    return np.where(self < 0, self.dtype.type(0), self)  # -0 and NaN stay


@elementwise("aten.clamp.default", integers=clamped("self", "min", "max"))
def clamp(self: Tensor, min: int | float | None, max: int | float | None, *, out: Tensor) -> Formula:
    return _clamped(self, min, max, out)


@clamp.reference
def _(self: Any, min: float | None, max: float | None) -> Any:
    bounds = [bound for bound in (min, max) if bound is not None]
    return computed(lambda x: numpy_clamp(x, min, max), self, dtype=promoted(self, *bounds))


@elementwise("aten.hardtanh.default")
def hardtanh(self: Tensor, min_val: int | float, max_val: int | float, *, out: Tensor) -> Formula:
    return _clamped(self, min_val, max_val, out)


@hardtanh.reference
def _(self: Any, min_val: float, max_val: float) -> Any:
    return computed(lambda x: numpy_clamp(x, min_val, max_val), self)


def _inverted(self: Tensor, out: Tensor) -> Formula:
    return Formula("not" if out.dtype is DType.BOOL else "invert", (self,))


@elementwise("aten.logical_not.default")
def logical_not(self: Tensor, *, out: Tensor) -> Formula:
    return _inverted(self, out)


@logical_not.reference
def _(self: Any) -> Any:
    return np.logical_not(self)


@elementwise("aten.bitwise_not.default")
def bitwise_not(self: Tensor, *, out: Tensor) -> Formula:
    return _inverted(self, out)


@bitwise_not.reference
def _(self: Any) -> Any:
    return np.invert(self)
