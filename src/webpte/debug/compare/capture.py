"""Read back every value of a method, and compute the same by the NumPy references of its ops.

A value that is written once becomes an output, so that nothing shares its buffer. A value that is written in place or
more than once is copied after each write: every call then has the inputs and outputs of its own time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import Error, UnsupportedError
from ...fusion import PASSES, apply_passes
from ...graph import LIVE_SCALARS, Call, Graph, Jump, Origin, Step, TensorSpec, Value
from ...graph.names import COPY
from ...lowering import find, gpu_op, mutated_positions, mutated_values, stored_bytes
from ...runtime import Method, Program
from ...runtime.kernels import CpuKernels
from ...typing import Array, PathLike
from .reports import Tolerance

PREPACK = "et_vk.prepack.default"  # its output comes from the file
MAX_READBACK_BYTES = 192 << 20  # of one run, at the bound; every device has buffers of 256 MB
MAX_JUMPS = 64


@dataclass(frozen=True)
class Watched:
    """A call, and the values that hold its inputs and outputs."""

    index: int
    call: Call
    before: dict[int, int]  # argument -> the value that holds it before the call
    after: dict[int, int]  # output or argument written in place -> the value that holds it after the call


def fused(graph: Graph) -> Graph:
    """Return the graph with every pass, as an ordinary method runs it."""
    return apply_passes(graph, tuple(PASSES))[0]


def straighten(program: Program, name: str, graph: Graph, args: Sequence[Any]) -> Graph:
    """Return the graph without jumps, as these inputs take it. Every jump is decided by a run up to it."""
    steps: list[Step] = []
    position = jumps = 0
    while position < len(graph.steps):
        step = graph.steps[position]
        if not isinstance(step, Jump):
            steps.append(step)
            position += 1
            continue
        jumps += 1
        if jumps > MAX_JUMPS:
            raise UnsupportedError(
                f"{name} has more than {MAX_JUMPS} jumps with these inputs",
                hint="Compare with smaller inputs.",
                code="too_many_jumps",
            )
        before = replace(graph, steps=tuple(steps), outputs=(step.condition,))
        (truth,) = program.method(name, lambda _, graph=before: graph).run(args)  # type: ignore[misc]
        position = position + 1 if np.all(truth) else step.target
    return replace(graph, steps=tuple(steps))


def written_by(call: Call) -> tuple[int, ...]:
    """Return what a call writes: its outputs, and arguments it changes in place."""
    return tuple(dict.fromkeys((*call.outs, *(call.args[p] for p in mutated_positions(call)))))


class Exposed:
    """A graph without jumps, with copies of values that would be overwritten."""

    def __init__(self, graph: Graph) -> None:
        self._values: list[Value] = list(graph.values)
        self._steps: list[Step] = []
        self._holders: dict[int, int] = {}  # value -> the one that holds its current content
        writes = Counter(v for call in graph.calls for v in written_by(call))
        early = {v for v in writes if v in graph.inputs or getattr(graph.values[v], "stored", False)}
        again = early | {v for v, count in writes.items() if count > 1}
        self._written = frozenset(writes)
        self._sources = {call.outs[0]: call.args[0] for call in graph.calls if call.name == PREPACK}
        for value_id in sorted(early):
            self._keep(value_id)
        self.watched = tuple(self._watch(graph, index, again) for index in range(len(graph.steps)))
        self.outputs = tuple(map(self._holder, graph.outputs))
        self.graph = replace(graph, values=tuple(self._values), steps=tuple(self._steps), outputs=())

    def _watch(self, graph: Graph, index: int, again: set[int]) -> Watched:
        call = graph.steps[index]
        assert isinstance(call, Call)
        before = {v: self._holder(v) for v in graph.flatten(call.args)}
        self._steps.append(call)
        written = written_by(call)
        for value_id in written:
            if value_id in again:
                self._keep(value_id)
        return Watched(index, call, before, {v: self._holder(v) for v in written})

    def _holder(self, value_id: int) -> int:
        return self._holders.get(value_id, value_id)

    def _keep(self, value_id: int) -> None:
        """Copy the current content of a value. A copy of a value that is written again is never an alias."""
        value = self._values[value_id]
        if isinstance(value, TensorSpec):
            value = replace(value, constant=None, mutable=False, dynamic=False)
        self._holders[value_id] = len(self._values)
        self._values.append(value)
        origin = self._steps[-1].origin if self._steps else Origin(0)
        self._steps.append(Call(COPY, (value_id,), (self._holders[value_id],), origin))

    def constant(self, value_id: int) -> Array | None:
        """Return the data of a constant in its declared dtype; None for any other value."""
        source = self._sources.get(value_id, value_id)
        spec = self.graph.values[source]
        if not isinstance(spec, TensorSpec) or spec.constant is None or source in self._written:
            return None
        return spec.constant.array(spec.dims).astype(spec.host_dtype.held, copy=False)

    def is_constant(self, value_id: int) -> bool:
        source = self._sources.get(value_id, value_id)
        return source not in self._written and getattr(self.graph.values[source], "constant", None) is not None

    def readable(self, ids: Iterable[int]) -> list[int]:
        """Return the values among `ids` that have to be read back: neither literals nor constants."""
        kinds = (TensorSpec, *LIVE_SCALARS)
        return [v for v in dict.fromkeys(ids) if isinstance(self.graph.values[v], kinds) and not self.is_constant(v)]

    def nbytes(self, value_id: int) -> int:
        """Return the bytes of a value that is read back, at its bound."""
        spec = self.graph.values[value_id]
        return stored_bytes(spec.dtype, spec.dims) if isinstance(spec, TensorSpec) else 0

    def end_tolerance(self, tolerance: Tolerance) -> Tolerance:
        """Return the tolerance of values that many calls have computed."""
        specs = (self.graph.values[v] for w in self.watched for v in w.call.outs)
        return tolerance.of_many(spec.dtype for spec in specs if isinstance(spec, TensorSpec))

    def windows(self) -> Iterator[tuple[list[Watched], list[int]]]:
        """Yield consecutive calls with the values to read back, within MAX_READBACK_BYTES."""
        calls: list[Watched] = []
        ids: dict[int, None] = {}
        held = 0
        for watched in self.watched:
            needed = self.readable([*watched.before.values(), *watched.after.values()])
            held += sum(self.nbytes(v) for v in needed if v not in ids)
            if calls and held > MAX_READBACK_BYTES:
                yield calls, list(ids)
                calls, ids, held = [], {}, sum(map(self.nbytes, needed))
            calls.append(watched)
            ids.update(dict.fromkeys(needed))
        yield calls, list(dict.fromkeys([*ids, *self.readable(self.outputs)]))


class Capture:
    """Runs of an exposed graph; each reads back one group of values."""

    def __init__(
        self,
        program: Program,
        name: str,
        exposed: Exposed,
        groups: Sequence[Sequence[int]],
        state: PathLike | None = None,
    ) -> None:
        self._program = program
        self._name = name
        self._state = state
        self._groups = groups
        self._graphs = [replace(exposed.graph, outputs=tuple(group)) for group in groups]
        self._earlier: list[Sequence[Any]] = []  # arguments of the calls so far
        self._method: Method | None = None  # kept between calls if there is one group

    def run(self, args: Sequence[Any]) -> Iterator[dict[int, Any]]:
        """Call the method and yield the values of each group, arrays and numbers.

        A large model has several groups. Only one of them has memory at a time, and earlier calls are repeated to
        restore its state.
        """
        earlier = tuple(self._earlier)
        self._earlier.append(args)
        for group, graph in zip(self._groups, self._graphs, strict=True):
            method = self._method or self._open(graph, earlier)
            values = dict(zip(group, method.run(args), strict=True))
            if len(self._groups) == 1:
                self._method = method
            else:
                method.close()
            yield values

    def _open(self, graph: Graph, earlier: Sequence[Sequence[Any]]) -> Method:
        method = self._program.method(self._name, lambda _: graph)
        if self._state is not None:
            method.restore(self._state)
        for args in earlier:
            method.run(args, outputs=())
        return method


class References:
    """The NumPy references of the ops, applied to the operands of a call."""

    def __init__(self, exposed: Exposed) -> None:
        self._exposed = exposed
        self._graph = exposed.graph
        self._kernels = CpuKernels()

    def computes(self, call: Call) -> bool:
        """Return whether a call computes tensors, and is neither a constant nor a scalar of the host."""
        return call.name != PREPACK and any(isinstance(self._graph.values[v], TensorSpec) for v in call.outs)

    def skipped(self, call: Call) -> str | None:
        """Return why a call that computes tensors is not compared; None if it is compared."""
        if gpu_op(call, self._graph) is None:
            return "runs on the CPU"
        op = find(call)
        return "its op has no reference" if op is None or op.compute is None else None

    def operands(self, watched: Watched, seen: Mapping[int, Any], own: Mapping[int, Array]) -> dict[int, Array]:
        """Return the tensors a call reads: from `own`, else from the file, else from the device."""
        tensors: dict[int, Array] = {}
        for value_id, holder in watched.before.items():
            if isinstance(self._graph.values[value_id], TensorSpec):
                array = own.get(value_id)
                if array is None:
                    array = self._exposed.constant(holder)
                tensors[value_id] = seen[holder] if array is None else array
        return tensors

    def scalars(self, watched: Watched, seen: Mapping[int, Any]) -> dict[int, Any]:
        """Return the live scalars a call reads."""
        values = self._graph.values
        return {v: seen[holder] for v, holder in watched.before.items() if isinstance(values[v], LIVE_SCALARS)}

    def run(self, watched: Watched, tensors: Mapping[int, Array], seen: Mapping[int, Any]) -> dict[int, Array]:
        """Return what the call writes, by value: outputs, and arguments it changes in place."""
        call = watched.call
        changed = set(mutated_values(call, self._graph))
        operands = {v: array.copy() if v in changed else array for v, array in tensors.items()}
        with np.errstate(all="ignore"):  # overflow is counted and compared
            outputs = self._kernels.run(call, self._graph, operands, self.scalars(watched, seen))
        return {**{v: operands[v] for v in changed}, **outputs}


class Ideal:
    """The method computed by references alone. State carries over from call to call."""

    def __init__(self, exposed: Exposed, references: References, outputs: tuple[int, ...]) -> None:
        self.values: dict[int, Array] = {}
        self.gaps: dict[str, str] = {}  # call -> why the device's result replaces the reference's
        self._references = references
        values = exposed.graph.values
        self._state = {v for w in exposed.watched for v in w.after if getattr(values[v], "stored", False)}
        self._last = {v: w.index for w in exposed.watched for v in (*w.before, *w.after)}
        self._last.update(dict.fromkeys((*outputs, *self._state), len(exposed.watched)))

    def begin(self) -> None:
        """Start a call of the method: keep only the state of the last one."""
        self.values = {v: array for v, array in self.values.items() if v in self._state}

    def advance(self, watched: Watched, seen: Mapping[int, Any]) -> None:
        """Compute one call from the results of the references so far."""
        if not self._references.computes(watched.call):
            return
        tensors = self._references.operands(watched, seen, self.values)
        try:
            self.values.update(self._references.run(watched, tensors, seen))
        except Error as error:
            self.gaps[f"{watched.call.name} ({watched.call.origin})"] = str(error)
            self.values.update({v: seen[holder] for v, holder in watched.after.items()})
        for value_id in (*watched.before, *watched.after):
            if self._last[value_id] <= watched.index:
                self.values.pop(value_id, None)
