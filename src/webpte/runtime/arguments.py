"""What callers are told of the inputs and outputs of a method, and the numbers among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..graph import Bool, Double, Graph, Int, String, SymBool, SymFloat, SymInt, TensorSpec
from ..lowering.numbers import INT32_HIGH, INT32_LOW
from ..text import table
from .checks import described


@dataclass(frozen=True, repr=False)
class ArgumentInfo:
    """An input or output of a method."""

    name: str  # as the file has it, else in0, in1, ... or out0, out1, ...
    kind: str  # "tensor", "int", "float", "bool", "str" or "none"
    dtype: str | None = None
    bound: tuple[int, ...] | None = None
    dynamic: tuple[bool, ...] | None = None  # which dims may be smaller than the bound

    def __str__(self) -> str:
        if self.bound is None or self.dynamic is None:
            return self.kind
        dims = ", ".join(f"<={b}" if may else str(b) for b, may in zip(self.bound, self.dynamic, strict=True))
        return f"{self.dtype}[{dims}]"

    def __repr__(self) -> str:
        return f"<{self.name}: {self}>"

    def _repr_html_(self) -> str:
        rows = {"kind": self.kind, "dtype": self.dtype or "", "shape": str(self) if self.bound is not None else ""}
        return table(self.name, {name: text for name, text in rows.items() if text})


_KINDS = {SymInt: "int", Int: "int", SymFloat: "float", Double: "float", SymBool: "bool", Bool: "bool", String: "str"}


def argument_names(graph: Graph, ids: Sequence[int], prefix: str) -> tuple[str, ...]:
    """One name for each input or output, each another: those of the file if they are, else numbers behind a prefix."""
    numbered = [f"{prefix}{position}" for position in range(len(ids))]
    given = [graph.names.get(value_id, number) for value_id, number in zip(ids, numbered, strict=True)]
    return tuple(given if len(set(given)) == len(given) else numbered)


def describe_all(
    graph: Graph, ids: Sequence[int], prefix: str, dynamic_dims: Mapping[int, tuple[bool, ...]]
) -> tuple[ArgumentInfo, ...]:
    """Inputs or outputs."""
    names = argument_names(graph, ids, prefix)
    return tuple(describe(graph, i, dynamic_dims, name) for i, name in zip(ids, names, strict=True))


def describe(graph: Graph, value_id: int, dynamic_dims: Mapping[int, tuple[bool, ...]], name: str = "") -> ArgumentInfo:
    """What a caller has to know of a value. Without an entry in `dynamic_dims` a dynamic tensor's dims may all vary."""
    value = graph.values[value_id]
    if isinstance(value, TensorSpec):
        dynamic = dynamic_dims.get(value_id, (value.dynamic,) * len(value.dims))
        return ArgumentInfo(name, "tensor", value.host_dtype.short, value.dims, dynamic)
    return ArgumentInfo(name, _KINDS.get(type(value), "none"))


def zeros_for(spec: object, dims: tuple[int, ...] | None) -> Any:
    return np.zeros(dims, spec.host_dtype.held) if isinstance(spec, TensorSpec) and dims is not None else 0


def number_of(arg: Any, spec: object, where: str) -> float:
    """A number that a call gives: a Python number, or an array of one element. What would lose something is refused."""
    kind = "truth value" if isinstance(spec, SymBool) else "whole number" if isinstance(spec, SymInt) else "number"
    try:
        value = arg.item() if hasattr(arg, "item") else arg
        if not isinstance(value, (int, float)):
            raise TypeError("neither int nor float")
        number = bool(value) if isinstance(spec, SymBool) else int(value) if isinstance(spec, SymInt) else float(value)
        if number != value and value == value:  # 1.5 as a whole number, 2 as a truth value; NaN is unequal to itself
            raise ValueError("another number")
    except Exception as error:  # `item` may be anything's
        raise InputError(f"{where} must be a {kind}, or an array of one, not {described(arg)}") from error
    if isinstance(spec, SymInt) and not INT32_LOW <= number <= INT32_HIGH:
        raise InputError(
            f"{where} is {number}; the device computes with 32-bit integers, {INT32_LOW} to {INT32_HIGH}",
            code="int32_range",
        )
    return number
