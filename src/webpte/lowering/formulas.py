"""The formula of an elementwise op for one element: a function and its operands."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..graph import DType, TensorSpec
from ..graph.expressions import Term
from .context import Tensor
from .numbers import HALVES, bits_of

# The compile time of functions, in units of an addition, roughly as measured. Functions not listed count 1.
WEIGHTS = {
    "cos": 4,
    "div_floor": 8,
    "div_trunc": 2,
    "erf": 4,
    "fmod": 8,
    "gelu": 4,
    "gelu_tanh": 4,
    "pow": 16,
    "remainder": 8,
    "sin": 4,
    "tanh": 4,
}
CUSTOM_WEIGHT = 4  # of a function with its own code


def number_type(dtype: DType) -> str:
    """Return the WGSL type that values of a dtype are computed in, as in types.wgsl."""
    return "f32" if dtype in (DType.FLOAT32, *HALVES) else "i32"


class Number(NamedTuple):
    """An argument of a function that is not an operand, such as a slope."""

    bits: Term
    type: str = "i32"

    @staticmethod
    def of(value: Term, dtype: DType = DType.FLOAT32) -> Number:
        """Return a number in the type that values of a dtype are computed in."""
        return Number(bits_of(value, number_type(dtype) == "f32"), number_type(dtype))


class Formula(NamedTuple):
    """A function and its operands.

    The function is one of formulas.wgsl, or has `code`: a WGSL expression of the operands and then the numbers, which
    it calls a, b, c and so on. Values of floats are f32 in it, all others i32.
    """

    function: str
    operands: tuple[Tensor | Term, ...]
    types: tuple[DType, ...] = ()  # to which the operands are converted; by default the output's dtype
    numbers: tuple[Number, ...] = ()  # further arguments
    code: str | None = None

    @property
    def weight(self) -> int:
        """Return the compile time in units of an addition."""
        return weight_of(self.function, self.code)

    @property
    def uniforms(self) -> int:
        """Return the number of words it takes in a parameter block."""
        return sum(not isinstance(operand, Tensor) for operand in self.operands) + len(self.numbers)


Describe = Callable[..., Formula]  # from an op's arguments and `out`; it reads only their dtypes


def weight_of(function: str, code: str | None) -> int:
    return WEIGHTS.get(function, 1) if code is None else CUSTOM_WEIGHT


def copied(self: Tensor, *, out: Tensor) -> Formula:
    """Return the formula of a copy, which converts if the result has another dtype."""
    return Formula("copy", (self,))


def symbol(dtype: DType) -> Tensor:
    """Return a tensor of which only the dtype is known."""
    return Tensor(-1, TensorSpec(dtype, (), dtype))
