"""What callers are told of the inputs and outputs of a method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..graph import Bool, Double, Graph, Int, String, SymBool, SymFloat, SymInt, TensorSpec


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
