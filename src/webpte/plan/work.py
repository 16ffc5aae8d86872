"""The work of a call, computed from its live shapes: bytes of its dispatches, and arithmetic of products.

Bytes are those of all bindings at their live size, once per dispatch. If an op accesses only a part of a tensor (a row
of a table, the filled part of a cache), only that part counts: see lowering.traits. It is the minimum a kernel has to
move, so a rate computed with it is the effective bandwidth, caches aside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..graph import LIVE_SCALARS, Call, Graph, IntList, TensorSpec
from ..graph.expressions import ScalarInput, Term, TermEvaluator
from ..lowering import WHOLE, Dispatch, find, stored_bytes
from .plan import Plan
from .schedules import CallValues, Dims, DispatchWork, LoweredCall, Schedule


class CallWork:
    """The work of a call, from its schedules and its live values."""

    def __init__(self, plan: Plan, schedules: Sequence[Schedule], live: CallValues) -> None:
        self._graph: Graph = plan.graph
        self._dims = {v: dims for s in schedules for v, dims in s.dims.items()}
        self._dtypes = {value_id: scratch.spec.dtype for value_id, scratch in plan.scratch.items()}
        self._terms: dict[int, Term] = {v: term for s in schedules for v, term in s.scalars.items()}
        self._numbers = TermEvaluator(live.arrays, live.scalars)

    def bytes(self, lowered: LoweredCall, dispatch: Dispatch) -> int:
        """Return the bytes that a dispatch reads and writes."""
        total = 0
        for position, binding in enumerate(dispatch.bindings):
            whole = self._nbytes(binding.tensor) if binding.nbytes == WHOLE else binding.nbytes
            total += int(whole * self._share(lowered, binding.tensor, position >= dispatch.kernel.reads))
        return total

    def flops(self, call: Call) -> int | None:
        """Return multiplications and additions of a product; None for other calls."""
        op = find(call)
        if op is None or op.traits.work is None:
            return None
        return op.traits.work(_Sizes(self, call, op.arguments(call)))

    def dispatches(self, schedule: Schedule) -> tuple[DispatchWork, ...]:
        """Return the work of every dispatch. Those of one call share its arithmetic in proportion to their bytes."""
        everything: list[DispatchWork] = []
        for lowered in schedule.calls:
            sizes = [self.bytes(lowered, dispatch) for dispatch in lowered.dispatches]
            flops = (self.flops(self._graph.call(lowered.step)) or 0) / (sum(sizes) or 1)
            everything += [DispatchWork(int(flops * nbytes), nbytes) for nbytes in sizes]
        return tuple(everything)

    def shapes(self, call: Call) -> str:
        """Return the live dims of a call's tensors, `[1, 7, 64] × [64, 64] → [1, 7, 64]`."""
        inputs, outputs = (
            [str(list(self.dims(v))) for v in ids if isinstance(self._graph.values[v], TensorSpec)]
            for ids in (self._graph.flatten(call.args), call.outs)
        )
        return f"{' × '.join(inputs)} → {', '.join(outputs)}"

    def dims(self, value_id: int) -> Dims:
        dims = self._dims.get(value_id)
        return self._graph.tensor(value_id).dims if dims is None else dims  # constants always have their full shape

    def _nbytes(self, value_id: int) -> int:
        dtype = self._dtypes.get(value_id)
        return stored_bytes(self._graph.tensor(value_id).dtype if dtype is None else dtype, self.dims(value_id))

    def number(self, value_id: int) -> Any:
        """Return the value of a scalar argument in that call."""
        value = self._graph.values[value_id]
        if not isinstance(value, LIVE_SCALARS):
            return getattr(value, "value", None)
        return self._numbers(self._terms.get(value_id, ScalarInput(value_id, True)))

    def members(self, value_id: int) -> tuple[int, ...]:
        """Return the values of a list; a single value is a list of one."""
        return self._graph.flatten((value_id,))

    def numbers(self, value_id: int) -> list[int]:
        """Return a list of integers."""
        value = self._graph.values[value_id]
        return list(value.values) if isinstance(value, IntList) else [self.number(v) for v in getattr(value, "ids", ())]

    def _share(self, lowered: LoweredCall, tensor: int, written: bool) -> float:
        """Return the share of a bound tensor that a call accesses."""
        call = self._graph.call(lowered.step)
        op = find(call)
        if op is None or tensor in call.outs:
            return 1.0
        arguments, traffic = op.arguments(call), op.traits.memory_traffic
        rule = next((traffic[name] for name, v in arguments.items() if v == tensor and name in traffic), None)
        return 1.0 if rule is None else min(1.0, rule(_Sizes(self, call, arguments), self.dims(tensor), written))


class _Sizes:
    """The live values of a call, for the rules of its op (lowering.traits.CallSizes)."""

    def __init__(self, work: CallWork, call: Call, arguments: dict[str, int]) -> None:
        self._work = work
        self._call = call
        self._arguments = arguments

    @property
    def out(self) -> Dims:
        return self._work.dims(self._call.outs[0])

    def dims(self, argument: str) -> Dims:
        return self._work.dims(self._arguments[argument])

    def each(self, argument: str) -> list[Dims]:
        return [self._work.dims(v) for v in self._work.members(self._arguments[argument])]

    def number(self, argument: str) -> Any:
        return self._work.number(self._arguments[argument])

    def numbers(self, argument: str) -> list[int]:
        return self._work.numbers(self._arguments[argument])
