"""Small graphs made by hand, to try a device out with."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Call, DType, Graph, Null, Origin, TensorSpec, Value


class Probe:
    """A graph of a few calls: values are added one by one, and their ids go into calls."""

    def __init__(self) -> None:
        self._values: list[Value] = []
        self._calls: list[Call] = []

    def add(self, value: Value) -> int:
        self._values.append(value)
        return len(self._values) - 1

    def tensor(self, *dims: int, dtype: DType = DType.FLOAT32) -> int:
        return self.add(TensorSpec(dtype, dims, dtype))

    def null(self) -> int:
        return self.add(Null())

    def call(self, name: str, *args: int, out: int) -> int:
        self._calls.append(Call(name, args, (out,), Origin(len(self._calls))))
        return out

    def graph(self, inputs: Sequence[int], outputs: Sequence[int]) -> Graph:
        return Graph("probe", tuple(self._values), tuple(self._calls), tuple(inputs), tuple(outputs))
