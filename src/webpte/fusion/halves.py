"""Graph to graph: rewrites that a device's capabilities ask for."""

from __future__ import annotations

from dataclasses import replace

from ..graph import OWN, DType, Graph, String, TensorSpec, Value, format_program, parse_program
from ..lowering import find


def widen_halves(graph: Graph) -> Graph:
    """Keep every f16 tensor in words, for devices whose shaders have no f16. Values are still those of f16."""
    ours = [(op, call) for call in graph.calls if call.name.startswith(OWN) and (op := find(call)) is not None]
    programs = {given["program"] for op, call in ours if "program" in (given := op.arguments(call))}

    def widened(value_id: int, value: Value) -> Value:
        if isinstance(value, TensorSpec) and value.dtype is DType.FLOAT16:
            return replace(value, dtype=DType.WIDE_FLOAT16)
        if isinstance(value, String) and value_id in programs and "\n" in value.value:
            return String(_widened_program(value.value))
        return value

    return replace(graph, values=tuple(widened(i, value) for i, value in enumerate(graph.values)))


def _widened_program(text: str) -> str:
    steps, outputs = parse_program(text)
    wide = {DType.FLOAT16.short: DType.WIDE_FLOAT16.short}
    return format_program([step._replace(dtype=wide.get(step.dtype, step.dtype)) for step in steps], outputs)
