"""Tensors of one element whose value stands in the file: programs take them as numbers, which need no binding."""

from __future__ import annotations

from collections.abc import Collection

from ..graph import LIVE_SCALARS, PREPACK, Bool, Double, Int, TensorSpec, Value, numel
from ..lowering import find
from .rewriter import Rewriter


class Numbers:
    """Known numbers of a graph that is being rewritten."""

    def __init__(self, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._ids: dict[int, int | None] = {}  # tensor -> the number in its place

    def arguments(self, given: dict[str, int], places: Collection[str]) -> dict[str, int]:
        """The arguments, numbers for tensors at those places where the shape of the result allows it."""
        known = {name: found for name in places if (found := self._number(given[name])) is not None}
        widest = max((self._rank(value_id) for name, value_id in given.items() if name not in known), default=-1)
        return {
            name: known[name] if name in known and self._rank(value_id) <= widest else value_id
            for name, value_id in given.items()
        }

    def _rank(self, value_id: int) -> int:
        spec = self._rewriter.values[value_id]
        return len(spec.dims) if isinstance(spec, TensorSpec) else -1

    def _number(self, value_id: int) -> int | None:
        if value_id not in self._ids:
            number = self._read(value_id)
            self._ids[value_id] = None if number is None else self._rewriter.add(number)
        return self._ids[value_id]

    def _read(self, value_id: int) -> Value | None:
        rewriter = self._rewriter
        spec = rewriter.values[value_id]
        if not isinstance(spec, TensorSpec) or numel(spec.dims) != 1 or not rewriter.settled(value_id):
            return None
        if spec.constant is not None:
            value = spec.constant.array(spec.dims).item()
            return Bool(value) if isinstance(value, bool) else Int(value) if isinstance(value, int) else Double(value)
        maker = rewriter.maker(value_id)
        if maker is None:
            return None
        _, call = maker
        if call.name == PREPACK:
            return self._read(rewriter.arguments(call)["x"])
        op = find(call)
        if op is None or op.facts.fills is None:
            return None
        value = rewriter.values[op.arguments(call)[op.facts.fills]]
        fixed = not any(isinstance(rewriter.values[v], LIVE_SCALARS) for v in rewriter.flatten(call.args))
        return value if fixed and isinstance(value, (Int, Double, Bool)) else None
