"""Small graphs made by hand, for tests that need neither a file nor a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from webpte.container import MappedFile, Span
from webpte.graph import Call, Constant, DType, Graph, Int, Jump, Null, Origin, SymInt, TensorSpec, Value, ValueList
from webpte.plan import CallValues, Plan, Planner, make_planner
from webpte.wgsl import Caps


class GraphBuilder:
    """Values are added one by one; their ids go into calls."""

    def __init__(self) -> None:
        self.values: list[Value] = []
        self.steps: list[Call | Jump] = []

    def add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def tensor(self, *dims: int, dtype: DType = DType.FLOAT32, **options: Any) -> int:
        return self.add(TensorSpec(dtype, dims, dtype, **options))

    def constant(self, array: np.ndarray) -> int:
        dtype = next(d for d in DType if d.numpy == array.dtype)
        file = MappedFile.from_bytes("constants", array.tobytes())
        held = Constant(Span(file, 0, file.size), dtype, f"constant {len(self.values)}")
        return self.add(TensorSpec(dtype, array.shape, dtype, constant=held))

    def number(self, value: int) -> int:
        return self.add(Int(value))

    def null(self) -> int:
        return self.add(Null())

    def symint(self) -> int:
        return self.add(SymInt())

    def list(self, *ids: int) -> int:
        return self.add(ValueList(ids))

    def call(self, name: str, args: Sequence[int], *outs: int, kernel: bool = False) -> None:
        self.steps.append(Call(name, tuple(args), outs, Origin(len(self.steps), 0, len(self.steps)), kernel))

    def unary(self, source: int, *dims: int, name: str = "aten.relu.default") -> int:
        out = self.tensor(*dims)
        self.call(name, (source,), out)
        return out

    def graph(self, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        return Graph("forward", tuple(self.values), tuple(self.steps), tuple(inputs), tuple(outputs))

    def plan(
        self, inputs: Sequence[int], outputs: Sequence[int], caps: Caps | None = None, cpu: Sequence[str] = ()
    ) -> Plan:
        return self.planner(inputs, outputs, caps, cpu).plan

    def planner(
        self, inputs: Sequence[int], outputs: Sequence[int], caps: Caps | None = None, cpu: Sequence[str] = ()
    ) -> Planner:
        return make_planner(self.graph(inputs, outputs), caps or Caps(), cpu)


def live(dims: dict[int, tuple[int, ...]], arrays: dict[int, Any] | None = None) -> CallValues:
    return CallValues(dict(dims), {}, {k: np.asarray(v) for k, v in (arrays or {}).items()})
