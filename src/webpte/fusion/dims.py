"""Symbolic shapes, to prove before a run that two dynamic shapes are always equal.

Equal bounds prove nothing: x[s <= 4, 8].view(4, -1) has the bound of x and another shape.
"""

from __future__ import annotations

import itertools
from collections import Counter

from ..errors import GraphError
from ..graph import Call, Graph, Int, IntList, SymInt, TensorSpec, Value, ValueList
from ..lowering import find
from ..lowering.dim_rules import Dim, Dims


class SymbolicDims:
    """The dims of the tensors of a straight-line graph, as sizes and names. A name is one size throughout a call."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._inputs = frozenset(graph.inputs)
        self._dims: dict[int, Dims] = {}
        self._scalars: dict[int, Dim] = {}
        self._fresh = itertools.count()
        self._derived: dict[tuple[Dim, int, int], Dim] = {}
        varying = (isinstance(v, SymInt) or (isinstance(v, TensorSpec) and v.dynamic) for v in graph.values)
        self._static = not any(varying)  # then bounds are exact
        writes = Counter([*graph.inputs, *(out for call in graph.calls for out in call.outs)])
        self._rewritten = {value_id for value_id, count in writes.items() if count > 1}
        for call in graph.calls:
            self._follow(call)

    def same(self, a: int, b: int) -> bool:
        """Return whether two tensors provably have the same shape in every call of the method."""
        return self.of(a) == self.of(b)

    def of(self, value_id: int) -> Dims:
        """Return the dims of a tensor. An unknown dim has its own name."""
        spec = self.graph.values[value_id]
        if not isinstance(spec, TensorSpec):
            return ()  # a number among the operands
        is_input = value_id in self._inputs
        if spec.stored or (is_input and not spec.dynamic):
            return spec.dims
        if value_id in self._rewritten:  # its dims may change during a call
            return tuple(self.unknown() for _ in spec.dims)
        if self._static:
            return spec.dims
        # A dim of 1 of an input cannot vary; elsewhere it could be 0.
        named = (1 if is_input and size == 1 else ("dim", value_id, d) for d, size in enumerate(spec.dims))
        return self._dims.get(value_id) or tuple(named)

    def at_most(self, size: Dim, limit: Dim) -> bool:
        """Return whether a size is provably at most another, by its bound."""
        if isinstance(size, int) or not isinstance(limit, int):
            return isinstance(size, int) and isinstance(limit, int) and size <= limit
        kind, value_id, axis = size
        return kind == "dim" and self.graph.tensor(value_id).dims[axis] <= limit

    def derived(self, size: Dim, less: int, stride: int) -> Dim:
        """Return the name of (size - less - 1) // stride + 1. Equal arguments give equal names."""
        return self._derived.setdefault((size, less, stride), ("derived", len(self._derived), 0))

    def unknown(self) -> Dim:
        """Return a new name."""
        return ("unknown", next(self._fresh), 0)

    def _follow(self, call: Call) -> None:
        op = find(call)
        if op is None or op.traits.dims is None:
            return
        try:
            results = op.traits.dims(_CallDims(self, call, op.arguments(call)))
            for out, dims in zip(call.outs, results, strict=False):
                spec = self.graph.values[out]
                if isinstance(spec, SymInt):
                    (self._scalars[out],) = dims
                elif isinstance(spec, TensorSpec) and len(dims) == len(spec.dims):
                    self._dims[out] = dims
        except (GraphError, IndexError, ValueError, ZeroDivisionError):
            pass  # invalid arguments: the lowering reports them
        except Exception as error:  # of a rule that a user registered
            raise GraphError(
                f"{call.name}: the dims rule failed: {type(error).__name__}: {error}", code="failing_rule"
            ) from error

    def sizes(self, value_id: int) -> Dims:
        value = self.graph.values[value_id]
        if isinstance(value, IntList):
            return value.values
        return tuple(self.scalar(v) for v in (value.ids if isinstance(value, ValueList) else (value_id,)))

    def scalar(self, value_id: int) -> Dim:
        value = self.graph.values[value_id]
        if isinstance(value, Int):
            return value.value
        if value_id in self._rewritten or not isinstance(value, SymInt):
            return self.unknown()
        return self._scalars.get(value_id, ("value", value_id, 0))


class _CallDims:
    """A call as the dims rule of its op reads it."""

    def __init__(self, live: SymbolicDims, call: Call, arguments: dict[str, int]) -> None:
        self._live = live
        self._call = call
        self._arguments = arguments
        self.at_most, self.derived, self.unknown = live.at_most, live.derived, live.unknown

    def value(self, name: str) -> Value:
        return self._live.graph.values[self._arguments[name]]

    def dims(self, name: str) -> Dims:
        return self._live.of(self._arguments[name])

    def members(self, name: str) -> list[Dims]:
        return [self._live.of(member) for member in self._live.graph.value_list(self._arguments[name])]

    def sizes(self, name: str) -> Dims:
        return self._live.sizes(self._arguments[name])

    def bound(self) -> tuple[int, ...]:
        return self._live.graph.tensor(self._call.outs[0]).dims
