"""One call by itself: on the device and by its op's reference. Scripts written by `webpte compare --repro` use it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import InputError
from ...graph import (
    Bool,
    BoolList,
    Call,
    Double,
    DoubleList,
    DType,
    Graph,
    Int,
    IntList,
    Null,
    Origin,
    String,
    SymBool,
    SymFloat,
    SymInt,
    TensorSpec,
    Value,
    ValueList,
    device_dtype,
)
from ...runtime.graphs import open_graph
from .capture import Exposed
from .measure import Difference, Tolerance, difference
from .references import References

Array = np.ndarray[Any, Any]
_LIVE: dict[type, Callable[[], Value]] = {bool: SymBool, int: SymInt, float: SymFloat}
_LITERALS: dict[type, Any] = {bool: Bool, int: Int, float: Double, str: String, type(None): lambda _: Null()}
_LISTS: dict[type, Any] = {bool: BoolList, int: IntList, float: DoubleList}


@dataclass(frozen=True)
class Operand:
    """A tensor argument: its data now, and the largest it may be in the model."""

    array: Array
    bound: tuple[int, ...]


@dataclass(frozen=True)
class Varying:
    """A number that changes from call to call, as a position in a cache does; any other number is a literal."""

    value: float


@dataclass(frozen=True)
class Out:
    """A tensor the call writes."""

    dtype: str  # as in "f32"
    bound: tuple[int, ...]


class _OneCall:
    """A graph with a single call."""

    def __init__(self, name: str, args: Sequence[Any], outs: Sequence[Out | int], kernel: bool) -> None:
        self.values: list[Value] = []
        self.inputs: list[int] = []
        self.given: list[Any] = []
        ids = tuple(self._argument(arg) for arg in args)
        made = tuple(ids[out] if isinstance(out, int) else self._out(out) for out in outs)
        call = Call(name, ids, made, Origin(0, 0, 0), kernel)
        self.graph = Graph("one call", tuple(self.values), (call,), tuple(self.inputs), made)

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _argument(self, arg: Any) -> int:
        if isinstance(arg, (Operand, Varying)):
            return self._input(arg)
        if isinstance(arg, list):
            kinds = {type(item) for item in arg}
            if len(kinds) == 1 and (kind := _LISTS.get(*kinds)) is not None:
                return self._add(kind(tuple(arg)))
            return self._add(ValueList(tuple(self._argument(item) for item in arg)))
        if type(arg) not in _LITERALS:
            raise InputError(f"an argument is a {type(arg).__name__}; wrap arrays as Operand(array, bound)")
        return self._add(_LITERALS[type(arg)](arg))

    def _input(self, arg: Operand | Varying) -> int:
        if isinstance(arg, Varying):
            self.given.append(arg.value)
            value: Value = _LIVE[type(arg.value)]()
        else:
            self.given.append(arg.array)
            dtype = next(d for d in DType if d.numpy == arg.array.dtype)
            value = TensorSpec(device_dtype(dtype), arg.bound, dtype, dynamic=arg.array.shape != arg.bound)
        self.inputs.append(self._add(value))
        return self.inputs[-1]

    def _out(self, out: Out) -> int:
        dtype = next(d for d in DType if d.short == out.dtype)
        return self._add(TensorSpec(device_dtype(dtype), out.bound, dtype))


def check_call(
    name: str,
    args: Sequence[Any],
    outs: Sequence[Out | int],
    *,
    kernel: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
) -> list[tuple[Array, Array, Difference]]:
    """Run one call on the device and by its reference: (got, wanted, difference) of all it writes.

    `args` are those of the op's schema: an Operand, a Varying number, a literal or a list of such. `outs` are what it
    gives back, an int being the position of an argument that is. `kernel` tells an out-variant, outside delegates.
    """
    one = _OneCall(name, args, outs, kernel)
    exposed = Exposed(one.graph)
    (watched,) = exposed.watched
    ids = exposed.readable([*watched.before.values(), *watched.after.values()])
    graph = Graph("one call", exposed.graph.values, exposed.graph.steps, one.graph.inputs, tuple(ids))
    with open_graph(graph) as method:
        seen = dict(zip(ids, method.run(one.given), strict=True))
    references = References(exposed)
    wanted = references.run(watched, references.operands(watched, seen, {}), seen)
    tolerance = Tolerance(rtol, atol)
    results = []
    for value_id, holder in watched.after.items():
        found = difference(seen[holder], wanted[value_id], tolerance)
        results.append((seen[holder], wanted[value_id], found))
    return results
