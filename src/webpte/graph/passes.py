"""Graph to graph: rewrites that a device's capabilities ask for."""

from __future__ import annotations

from dataclasses import replace

from ..container import DType
from .graph import Graph
from .values import TensorSpec, Value


def widen_halves(graph: Graph) -> Graph:
    """Store every f16 tensor as f32, for devices whose shaders have no f16. Callers still see the declared dtype."""

    def widened(value: Value) -> Value:
        if isinstance(value, TensorSpec) and value.dtype is DType.FLOAT16:
            return replace(value, dtype=DType.FLOAT32)
        return value

    return replace(graph, values=tuple(map(widened, graph.values)))
