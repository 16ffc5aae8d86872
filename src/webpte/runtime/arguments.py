"""What callers are told of the inputs and outputs of a method, and the numbers among them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..graph import Bool, Double, Graph, Int, String, SymBool, SymFloat, SymInt, TensorSpec
from ..lowering.numbers import INT32_HIGH, INT32_LOW


@dataclass(frozen=True)
class ArgumentInfo:
    """An input or output of a method."""

    kind: str  # "tensor", "int", "float", "bool", "str" or "none"
    dtype: str | None = None
    bound: tuple[int, ...] | None = None
    dynamic: tuple[bool, ...] | None = None  # which dims may be smaller than the bound

    def __str__(self) -> str:
        if self.bound is None or self.dynamic is None:
            return self.kind
        dims = ", ".join(f"<={b}" if may else str(b) for b, may in zip(self.bound, self.dynamic, strict=True))
        return f"{self.dtype}[{dims}]"


_KINDS = {SymInt: "int", Int: "int", SymFloat: "float", Double: "float", SymBool: "bool", Bool: "bool", String: "str"}


def describe(graph: Graph, value_id: int, dynamic_dims: Mapping[int, tuple[bool, ...]]) -> ArgumentInfo:
    """What a caller has to know of a value. Without an entry in `dynamic_dims` a dynamic tensor's dims may all vary."""
    value = graph.values[value_id]
    if isinstance(value, TensorSpec):
        dynamic = dynamic_dims.get(value_id, (value.dynamic,) * len(value.dims))
        return ArgumentInfo("tensor", value.host_dtype.short, value.dims, dynamic)
    return ArgumentInfo(_KINDS.get(type(value), "none"))


def zeros_for(spec: object, dims: tuple[int, ...] | None) -> Any:
    return np.zeros(dims, spec.host_dtype.held) if isinstance(spec, TensorSpec) and dims is not None else 0


def number_of(arg: Any, spec: object, where: str) -> float:
    try:
        value = arg.item() if hasattr(arg, "item") else arg
        number = bool(value) if isinstance(spec, SymBool) else int(value) if isinstance(spec, SymInt) else float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{where} must be a number, not {type(arg).__name__}") from error
    if isinstance(spec, SymInt) and not INT32_LOW <= number <= INT32_HIGH:
        raise InputError(f"{where} is {number}; the device computes with 32-bit integers, {INT32_LOW} to {INT32_HIGH}")
    return number
