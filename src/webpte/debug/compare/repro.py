"""Reproduce one call: run it on the device and by its reference, or write it as a script with its operands."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import InputError
from ...graph import (
    LIVE_SCALARS,
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
from ...runtime.program import open_graph
from ...typing import Array
from .capture import Exposed, References
from .reports import Comparison, Difference, Tolerance, difference

_LIVE: dict[type, Callable[[], Value]] = {bool: SymBool, int: SymInt, float: SymFloat}
_LITERALS: dict[type, Any] = {bool: Bool, int: Int, float: Double, str: String, type(None): lambda _: Null()}
_LISTS: dict[type, Any] = {bool: BoolList, int: IntList, float: DoubleList}


@dataclass(frozen=True)
class TensorOperand:
    """A tensor argument: its data, and its bound in the model."""

    array: Array
    bound: tuple[int, ...]


@dataclass(frozen=True)
class Varying:
    """A number that changes from call to call, such as a position in a cache; other numbers are literals."""

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
        self.arguments: list[Any] = []
        ids = tuple(self._argument(arg) for arg in args)
        outputs = tuple(ids[out] if isinstance(out, int) else self._out(out) for out in outs)
        call = Call(name, ids, outputs, Origin(0, 0, 0), kernel)
        self.graph = Graph("one call", tuple(self.values), (call,), tuple(self.inputs), outputs)

    def _add(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def _argument(self, arg: Any) -> int:
        if isinstance(arg, (TensorOperand, Varying)):
            return self._input(arg)
        if isinstance(arg, list):
            kinds = {type(item) for item in arg}
            if len(kinds) == 1 and (kind := _LISTS.get(*kinds)) is not None:
                return self._add(kind(tuple(arg)))
            return self._add(ValueList(tuple(self._argument(item) for item in arg)))
        if type(arg) not in _LITERALS:
            raise InputError(
                argument="args",
                expected="literals, lists, Varying numbers and arrays as TensorOperand(array, bound)",
                got=type(arg).__name__,
                code="wrong_type",
            )
        return self._add(_LITERALS[type(arg)](arg))

    def _input(self, arg: TensorOperand | Varying) -> int:
        if isinstance(arg, Varying):
            self.arguments.append(arg.value)
            value: Value = _LIVE[type(arg.value)]()
        else:
            self.arguments.append(arg.array)
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
    """Run one call on the device and by its reference. Return (got, expected, difference) of all it writes.

    `args` are the arguments of the op's schema: a TensorOperand, a Varying number, a literal, or a list of these.
    `outs` are its outputs; an integer is the position of an argument that the call returns. `kernel` is true for an
    out-variant outside delegates.
    """
    one = _OneCall(name, args, outs, kernel)
    exposed = Exposed(one.graph)
    (watched,) = exposed.watched
    ids = exposed.readable([*watched.before.values(), *watched.after.values()])
    graph = Graph("one call", exposed.graph.values, exposed.graph.steps, one.graph.inputs, tuple(ids))
    with open_graph(graph) as method:
        seen = dict(zip(ids, method.run(one.arguments), strict=True))
    references = References(exposed)
    expected = references.run(watched, references.operands(watched, seen, {}), seen)
    tolerance = Tolerance(rtol, atol)
    results = []
    for value_id, holder in watched.after.items():
        result = difference(seen[holder], expected[value_id], tolerance)
        results.append((seen[holder], expected[value_id], result))
    return results


SCRIPT = '''"""{title}

Runs this call on the device and by its NumPy reference, with the operands of the device.
"""

from pathlib import Path

import numpy as np

from webpte.debug.compare import Varying, TensorOperand, Out, check_call

with np.load(Path(__file__).with_name("{data}")) as file:
    saved = dict(file)
args = [
{args}
]
outs = [{outs}]

if __name__ == "__main__":
    results = check_call("{name}", args, outs{settings})
    for got, expected, difference in results:
        print(difference)
    raise SystemExit(not all(difference.within for _, _, difference in results))
'''


def write_repro(folder: str | os.PathLike[str], comparison: Comparison, title: str) -> tuple[Path, Path] | None:
    """Write script and data for the suspect of a comparison. Return their paths, or None without a suspect."""
    suspect = comparison.suspect
    if suspect is None:
        return None
    call, graph, report = suspect.call, suspect.graph, suspect.report
    root = Path(folder)
    root.mkdir(parents=True, exist_ok=True)
    stem = f"step{report.step}_call{report.index}_{call.name.split('::')[-1].replace('.', '_')}"
    arguments = _Arguments(graph, suspect.tensors, suspect.scalars)
    settings = {"kernel": call.kernel, "rtol": comparison.rtol, "atol": comparison.atol}
    script, data = root / f"{stem}.py", root / f"{stem}.npz"
    text = SCRIPT.format(
        title=title,
        data=data.name,
        args="\n".join(f"    {arguments.text(value_id)}," for value_id in call.args),
        outs=", ".join(_out(call, graph, value_id) for value_id in call.outs),
        name=call.name,
        settings="".join(f", {name}={value}" for name, value in settings.items() if value not in (None, False)),
    )
    np.savez(data, allow_pickle=False, **arguments.arrays)
    script.write_text(text, encoding="utf-8")
    return script, data


class _Arguments:
    """The arguments of a call as Python source, and the arrays it refers to."""

    def __init__(self, graph: Graph, tensors: Mapping[int, Array], scalars: Mapping[int, Any]) -> None:
        self._graph = graph
        self._tensors = tensors
        self._scalars = scalars
        self.arrays: dict[str, Array] = {}

    def text(self, value_id: int) -> str:
        value = self._graph.values[value_id]
        match value:
            case TensorSpec():
                name = f"value{value_id}"
                self.arrays[name] = self._tensors[value_id]
                return f'TensorOperand(saved["{name}"], bound={value.dims})'
            case Null():
                return "None"
            case Int() | Double() | Bool() | String():
                return _literal(value.value)
            case IntList() | DoubleList() | BoolList():
                return f"[{', '.join(map(_literal, value.values))}]"
            case ValueList():
                return f"[{', '.join(map(self.text, value.ids))}]"
        assert isinstance(value, LIVE_SCALARS)
        number = self._scalars[value_id]
        kind = bool if isinstance(value, SymBool) else int if isinstance(value, SymInt) else float
        return f"Varying({_literal(kind(number))})"


def _literal(value: Any) -> str:
    """Return a number as source: infinities have no literal."""
    return repr(value) if not isinstance(value, float) or np.isfinite(value) else f'float("{value}")'


def _out(call: Call, graph: Graph, value_id: int) -> str:
    if value_id in call.args:
        return str(call.args.index(value_id))
    spec = graph.tensor(value_id)
    return f'Out("{spec.host_dtype.short}", {spec.dims})'
