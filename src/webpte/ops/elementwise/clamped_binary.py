"""Arithmetic on two operands with a clamp after or before it: what ExecuTorch 1.0 makes of two calls.

It fuses relu, hardtanh and clamp into the sum, difference, product or quotient before them. Later releases do not.
Only floats are taken: whether an integer sum left 32 bits cannot be seen once it is clamped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...graph.expressions import Term
from ...lowering.context import Tensor
from ...lowering.formulas import Formula
from ...lowering.numbers import computed
from ...lowering.registry import FLOATS
from .elementwise import elementwise
from .unary import clamp_bounds, numpy_clamp

# The operator in WGSL, and its reference.
_OPERATIONS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("+", np.add),
    "sub": ("-", np.subtract),
    "mul": ("*", np.multiply),
    "div": ("/", np.true_divide),
}


def _clamp(value: str) -> str:
    """WGSL that clamps an f32 to the bounds c and d, which are order keys. NaN stays NaN, as in PyTorch."""
    return f"select(from_order_key(min(max(order_key({value}), c), d)), {value}, is_nan({value}))"


def _register(name: str, operator: str, function: Callable[[Any, Any], Any]) -> None:
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


for _name, _operation in _OPERATIONS.items():
    _register(_name, *_operation)
