"""What calls should give, by the NumPy references of their ops: one by one, and the whole method in a row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import Error
from ...graph import LIVE_SCALARS, Call, TensorSpec
from ...lowering import find, gpu_op, mutated_values
from ...runtime.kernels import CpuKernels
from .capture import PREPACK, Exposed, Watched

Array = np.ndarray[Any, Any]


class References:
    """The ops' own references, applied to the operands of a call."""

    def __init__(self, exposed: Exposed) -> None:
        self._exposed = exposed
        self._graph = exposed.graph
        self._kernels = CpuKernels()

    def computes(self, call: Call) -> bool:
        """Whether a call computes tensors, and does not just name a constant or make a number on the host."""
        return call.name != PREPACK and any(isinstance(self._graph.values[v], TensorSpec) for v in call.outs)

    def skipped(self, call: Call) -> str | None:
        """Why a call that computes tensors is not compared; None if it is."""
        if gpu_op(call, self._graph) is None:
            return "runs on the CPU"
        op = find(call)
        return "its op has no reference" if op is None or op.compute is None else None

    def operands(self, watched: Watched, seen: Mapping[int, Any], own: Mapping[int, Array]) -> dict[int, Array]:
        """The tensors a call reads: from `own` where it has them, else from the file or what the device had."""
        tensors: dict[int, Array] = {}
        for value_id, holder in watched.before.items():
            if isinstance(self._graph.values[value_id], TensorSpec):
                found = own.get(value_id)
                if found is None:
                    found = self._exposed.constant(holder)
                tensors[value_id] = seen[holder] if found is None else found
        return tensors

    def scalars(self, watched: Watched, seen: Mapping[int, Any]) -> dict[int, Any]:
        """The live numbers a call reads."""
        values = self._graph.values
        return {v: seen[holder] for v, holder in watched.before.items() if isinstance(values[v], LIVE_SCALARS)}

    def run(self, watched: Watched, tensors: Mapping[int, Array], seen: Mapping[int, Any]) -> dict[int, Array]:
        """What the call writes, by value: outputs, and arguments it changes in place."""
        call = watched.call
        changed = set(mutated_values(call, self._graph))
        operands = {v: array.copy() if v in changed else array for v, array in tensors.items()}
        with np.errstate(all="ignore"):  # what overflows is watched, and compared
            outputs = self._kernels.run(call, self._graph, operands, self.scalars(watched, seen))
        return {**{v: operands[v] for v in changed}, **outputs}


class Ideal:
    """The method computed by references alone, beside the device's run. State carries over from call to call."""

    def __init__(self, exposed: Exposed, references: References, outputs: tuple[int, ...]) -> None:
        self.values: dict[int, Array] = {}
        self.gaps: dict[str, str] = {}  # call -> why the device's result stands in for the reference's
        self._references = references
        values = exposed.graph.values
        self._state = {v for w in exposed.watched for v in w.after if getattr(values[v], "stored", False)}
        self._last = {v: w.index for w in exposed.watched for v in (*w.before, *w.after)}
        self._last.update(dict.fromkeys((*outputs, *self._state), len(exposed.watched)))

    def begin(self) -> None:
        """A call of the method: nothing is left of the last one but its state."""
        self.values = {v: array for v, array in self.values.items() if v in self._state}

    def advance(self, watched: Watched, seen: Mapping[int, Any]) -> None:
        """Compute one call from the references' own results so far."""
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
