"""Read what a value of a graph is computed from, call by call, for passes that recognize what the builder writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..graph import Int, IntList, Null, TensorSpec, Value, ValueList
from ..graph.names import PREPACK
from .rewriter import Rewriter, role_of


class MismatchError(Exception):
    """The calls are others than those of the pattern."""


def require(condition: bool) -> None:
    """Raise MismatchError unless a condition holds."""
    if not condition:
        raise MismatchError


class Pieces:
    """Reads what values are computed from. A method raises MismatchError if a call or a number is another."""

    def __init__(self, rewriter: Rewriter, roles: Mapping[str, str]) -> None:
        self.rewriter = rewriter
        self._roles = roles  # of the ops that the pass looks for

    def of(self, value_id: int, role: str) -> dict[str, int]:
        """Return the arguments of the call that computes a value."""
        producer = self.rewriter.producer(value_id)
        if producer is None or role_of(producer[1], self._roles) != role:
            raise MismatchError
        return self.rewriter.arguments(producer[1])

    def sum_of(self, value_id: int, role: str) -> tuple[int, int]:
        """Return the two tensors that a value is the sum, or by its role the difference, of."""
        terms = self.of(value_id, role)
        require(self.rewriter.values[terms["alpha"]] == Int(1))
        return terms["self"], terms["other"]

    def scaled(self, value_id: int) -> tuple[int, float]:
        """Return the tensor and the number that a value is the product of."""
        factors = self.of(value_id, "product")
        return factors["self"], self.number(factors["other"])

    def permuted(self, value_id: int, order: IntList) -> int:
        """Return the tensor whose dims a value has in another order."""
        source = self.of(self.unviewed(value_id), "permute")
        require(self.rewriter.values[source["dims"]] == order)
        return source["self"]

    def clamped(self, value_id: int, role: str, low: int | None, high: int | None) -> int:
        source = self.of(value_id, role)
        limits = [self.rewriter.values[source[name]] for name in ("min", "max")]
        require(limits == [Null() if limit is None else Int(limit) for limit in (low, high)])
        return source["self"]

    def rows(self, value_id: int, role: str) -> tuple[np.ndarray[Any, Any], int]:
        """Return the table and the index of the rows of it that a value consists of."""
        source = self.of(value_id, role)
        require(self.rewriter.values[source["dim"]] == Int(0))
        return self.constant(source["self"]), source["index"]

    def constant_of(self, value_id: int) -> int:
        """Return the constant that a value is."""
        producer = self.rewriter.producer(value_id)
        if producer is not None and producer[1].name == PREPACK:
            value_id = producer[1].args[0]
        require(self.tensor(value_id).constant is not None and self.rewriter.is_immutable(value_id))
        return value_id

    def constant(self, value_id: int) -> np.ndarray[Any, Any]:
        spec = self.tensor(self.constant_of(value_id))
        assert spec.constant is not None
        return spec.constant.array(spec.dims)

    def number(self, value_id: int) -> float:
        """Return a number that is stored as a tensor without dims."""
        require(self.tensor(value_id).dims == ())
        return float(self.constant(value_id))

    def tensor(self, value_id: int) -> TensorSpec:
        spec = self.rewriter.values[value_id]
        if not isinstance(spec, TensorSpec):
            raise MismatchError
        return spec

    def unviewed(self, value_id: int) -> int:
        """Return the value that another is only a view of."""
        while (producer := self.rewriter.producer(value_id)) is not None:
            source = self.rewriter.source(producer[1])
            if source is None:
                break
            value_id = source
        return value_id

    def matched(self, value_id: int, pattern: Pattern) -> dict[str, int] | None:
        """Return the values that a pattern names; None if other calls compute the value."""
        names: dict[str, int] = {}
        try:
            self.match(value_id, pattern, names)
        except MismatchError:
            return None
        return names

    def match(self, value_id: int, pattern: Pattern, names: dict[str, int]) -> None:
        """Compare what computes a value with a pattern, and add the values that the pattern names to `names`."""
        seen: set[tuple[int, int]] = set()  # a pattern repeats the parts that a value is computed from several times

        def compare(value_id: int, part: Pattern) -> None:
            if isinstance(part, str):
                require(names.setdefault(part, value_id) == value_id)
            elif isinstance(part, tuple):
                listed = self.rewriter.values[value_id]
                require(isinstance(listed, ValueList) and len(listed.ids) == len(part))
                for member, each in zip(self.rewriter.flatten([value_id]), part, strict=True):
                    compare(member, each)
            elif not isinstance(part, CallPattern):
                require(self.rewriter.values[value_id] == part)
            elif (value_id, id(part)) not in seen:
                arguments = self.of(value_id, part.role)
                if part.name is not None:
                    compare(value_id, part.name)
                for name, each in part.arguments.items():
                    compare(arguments[name], each)
                seen.add((value_id, id(part)))

        compare(value_id, pattern)


@dataclass(frozen=True)
class CallPattern:
    """A call of a pattern: its role, patterns of some of its arguments, and a name of its result if that is used."""

    role: str
    arguments: Mapping[str, Pattern]
    name: str | None = None


def piece(role: str, name: str | None = None, /, **arguments: Pattern) -> CallPattern:
    """Return the pattern of a call."""
    return CallPattern(role, arguments, name)


# A name of any value, the same wherever it occurs; a call; the members of a list; or a number.
Pattern = str | CallPattern | tuple["Pattern", ...] | Value
