"""Schedules: the dispatches of a segment at given shapes, and the selection of the schedule for a call.

A call evaluates the expressions that schedules of its shapes are specialized on, and looks its schedule up. A planner
lowers a missing one. Then the live integers are evaluated and the guards are checked.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ..errors import GraphError, GuardError, RangeError, ShapeError
from ..graph import Graph, SymBool, SymInt
from ..graph.expressions import Expression, Number, ScalarInput, Term, TermEvaluator, stands_on
from ..lowering import Dispatch, Guard
from ..lowering.numbers import INT32_HIGH, INT32_LOW
from .plan import Plan
from .segments import PlanSegment

Dims = tuple[int, ...]
Array = np.ndarray[Any, Any]
Key = tuple[object, ...]  # dims and terms that enter a segment
MAX_SCHEDULES_PER_SEGMENT = 64  # per segment; a schedule is a few hundred small objects


@dataclass(frozen=True, slots=True)
class LoweredCall:
    """The dispatches of one call at one set of shapes."""

    step: int
    dispatches: tuple[Dispatch, ...]


class DispatchWork(NamedTuple):
    """The work of a dispatch: multiplications and additions of products, and bytes read and written."""

    flops: int
    nbytes: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Schedule:
    """The dispatches of a segment for one set of live shapes and specialized values."""

    segment: PlanSegment
    calls: tuple[LoweredCall, ...]
    dims: dict[int, Dims]  # of its inputs, results and scratch tensors
    result_dims: dict[int, Dims]  # of the results that are read elsewhere
    scalars: dict[int, Term]  # its scalar results
    result_scalars: dict[int, Term]  # those that are read elsewhere
    specializations: tuple[tuple[Expression, Number], ...]  # the schedule applies to calls in which these hold
    slots: tuple[tuple[int, Expression], ...]  # live integers that its kernels read
    guards: tuple[Guard, ...]
    work: tuple[DispatchWork, ...] = ()  # of every dispatch; empty if it is not known, as in a saved plan

    @property
    def dispatches(self) -> list[Dispatch]:
        return [dispatch for call in self.calls for dispatch in call.dispatches]


@dataclass(slots=True)
class CallValues:
    """The values of one call of the method that segments read and write."""

    dims: dict[int, Dims]
    scalars: dict[int, Number]
    arrays: dict[int, Array]
    unsaved: set[int] = field(default_factory=set)  # state that the host has written and that is not committed yet
    terms: dict[int, Term] = field(default_factory=dict)  # scalars of which more is known than their number

    def term(self, value_id: int, graph: Graph) -> Term:
        """Return the term of a scalar input of a segment."""
        term = self.terms.get(value_id)
        return self.scalar_input(value_id, graph) if term is None else term

    def scalar_input(self, value_id: int, graph: Graph) -> ScalarInput:
        self.scalars[value_id]  # KeyError if it is unknown
        return ScalarInput(value_id, isinstance(graph.values[value_id], (SymInt, SymBool)))


class ScheduleStore:
    """The schedules of a method's plan. Not thread-safe."""

    def __init__(self, plan: Plan, max_schedules: int = MAX_SCHEDULES_PER_SEGMENT) -> None:
        self.plan = plan
        self._schedules = {segment: _Schedules(max_schedules) for segment in plan.flow.segments}

    def add(self, key: Key, schedule: Schedule) -> None:
        """Add a schedule for calls with these dims and terms as inputs of its segment."""
        self._schedules[schedule.segment].keep(key, schedule)

    def make_room(self, count: int) -> None:
        """Raise the number of schedules that are kept."""
        for schedules in self._schedules.values():
            schedules.max_schedules += count

    def known(self) -> list[tuple[Key, Schedule]]:
        """Return every schedule with its key of dims and terms."""
        return [pair for schedules in self._schedules.values() for pair in schedules.items()]

    def prepare(self, segment: PlanSegment, live: CallValues) -> tuple[Schedule, dict[int, int]]:
        """Return the schedule for this call, after its guards are checked, and its live integers by slot.

        The dims and scalars of the segment's results are added to `live`.
        """
        numbers = TermEvaluator(live.arrays, live.scalars)
        graph = self.plan.graph
        try:
            key = (*(live.dims[t] for t in segment.tensors), *(live.term(s, graph) for s in segment.scalars))
        except KeyError as unknown:  # on the way that the jumps took
            raise GraphError(
                f"value {unknown.args[0]} is read before it is written", code="read_before_write"
            ) from None
        schedule = self._schedules[segment].find(key, numbers)
        if schedule is None:
            schedule = self.missing(segment, live, numbers)
            self.add(key, schedule)
        for guard in schedule.guards:
            if (refusal := guard.refusal(numbers)) is not None:
                raise (RangeError if guard.overflow else GuardError)(refusal)
        slots = _slot_values(schedule, numbers)
        add_results(schedule, live, numbers, graph)
        return schedule, slots

    def fits(self, live: CallValues) -> bool:
        """Return whether every segment that reads inputs of the method has a schedule for their dims in a call."""
        inputs = set(self.plan.graph.inputs)

        def agrees(segment: PlanSegment, key: Key) -> bool:
            return all(live.dims[t] == dims for t, dims in zip(segment.tensors, key, strict=False) if t in inputs)

        return all(
            any(agrees(segment, key) for key, _ in schedules.items()) for segment, schedules in self._schedules.items()
        )

    def missing(self, segment: PlanSegment, live: CallValues, numbers: TermEvaluator) -> Schedule:
        """Return a schedule that is not in the store. Only a planner can; here it raises ShapeError."""
        shapes = self._words(segment, [live.dims[t] for t in segment.tensors])
        decisions: dict[str, list[str]] = {}  # shapes -> specialized values
        for key, schedule in self._schedules[segment].items():
            decided = ", ".join(f"{term} = {number}" for term, number in schedule.specializations)
            decisions.setdefault(self._words(segment, key[: len(segment.tensors)]), []).append(decided)
        if shapes in decisions:
            now = ", ".join(f"{term} = {numbers(term)}" for term in self._decided(segment, shapes))
            saved = f"{shapes} only with {_listed(decisions[shapes]) or 'other scalars'}; now {now or 'with these'}"
        else:
            saved = f"{_listed(list(decisions)) or 'no shapes'}; this call has {shapes}"
        raise ShapeError(
            f"{self.plan.graph.name} has saved schedules for {saved}. "
            "Write it again for these shapes: webpte bundle FILE -o DIR --shapes CALL, or method.save(folder, shapes).",
            code="not_saved",
        )

    def _decided(self, segment: PlanSegment, shapes: str) -> dict[Expression, None]:
        pairs = self._schedules[segment].items()
        return {
            term: None
            for key, schedule in pairs
            if self._words(segment, key[: len(segment.tensors)]) == shapes
            for term, _ in schedule.specializations
        }

    def _words(self, segment: PlanSegment, dims: Sequence[object]) -> str:
        """Return the shapes of a segment's inputs for messages."""
        inputs = self.plan.graph.inputs
        names = [f"input {inputs.index(t)}" if t in inputs else f"value {t}" for t in segment.tensors]
        return ", ".join(f"{name} {list(d)}" for name, d in zip(names, dims, strict=True)) or "no tensors"  # type: ignore[call-overload]


def _listed(words: Sequence[str], max_words: int = 8) -> str:
    return "; ".join(words[:max_words]) + (f"; and {len(words) - max_words} more" if len(words) > max_words else "")


def add_results(schedule: Schedule, live: CallValues, numbers: TermEvaluator, graph: Graph) -> None:
    """Add the dims and scalars of a segment's results to the values of the call."""
    live.dims.update(schedule.result_dims)
    for value_id, term in schedule.result_scalars.items():
        live.scalars[value_id] = numbers(term)
        # A term over more than the inputs may have another value when the segment runs again.
        live.terms[value_id] = term if stands_on(term, graph.inputs) else live.scalar_input(value_id, graph)


class _Place(NamedTuple):
    """The key of a schedule: the inputs of the segment, the specialized expressions and their values."""

    key: Key
    asked: tuple[Expression, ...]
    numbers: tuple[Number, ...]


class _Schedules:
    """The schedules of a segment by shapes and specialized values. The oldest are evicted."""

    def __init__(self, max_schedules: int) -> None:
        self.max_schedules = max_schedules
        self._schedules: OrderedDict[_Place, Schedule] = OrderedDict()
        # The specialized expressions at these shapes, and the number of schedules of each.
        self._asked: dict[Key, dict[tuple[Expression, ...], int]] = {}

    def __len__(self) -> int:
        return len(self._schedules)

    def items(self) -> list[tuple[Key, Schedule]]:
        return [(place.key, schedule) for place, schedule in self._schedules.items()]

    def find(self, key: Key, numbers: TermEvaluator) -> Schedule | None:
        for asked in self._asked.get(key, ()):
            full = _Place(key, asked, tuple(map(numbers, asked)))
            schedule = self._schedules.get(full)
            if schedule is not None:
                self._schedules.move_to_end(full)
                return schedule
        return None

    def keep(self, key: Key, schedule: Schedule) -> None:
        asked = tuple(expression for expression, _ in schedule.specializations)
        uses = self._asked.setdefault(key, {})
        uses[asked] = uses.get(asked, 0) + 1
        self._schedules[_Place(key, asked, tuple(number for _, number in schedule.specializations))] = schedule
        while len(self._schedules) > self.max_schedules:
            oldest, _ = self._schedules.popitem(last=False)
            self._forget(oldest.key, oldest.asked)

    def _forget(self, key: Key, asked: tuple[Expression, ...]) -> None:
        uses = self._asked[key]
        uses[asked] -= 1
        if not uses[asked]:
            del uses[asked]
        if not uses:
            del self._asked[key]


def _slot_values(schedule: Schedule, numbers: TermEvaluator) -> dict[int, int]:
    values = {slot: int(numbers(term)) for slot, term in schedule.slots}
    if values and (min(values.values()) < INT32_LOW or max(values.values()) > INT32_HIGH):
        wrong = ", ".join(str(value) for value in values.values() if not INT32_LOW <= value <= INT32_HIGH)
        raise RangeError(f"uniform slots: expected 32-bit integers, got {wrong}", code="live_integer")
    return values
