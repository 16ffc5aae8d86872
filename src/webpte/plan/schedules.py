"""Schedules: what a segment does at given shapes, and which of them serves a call.

There is one path. A call evaluates what was decided on at its shapes and looks its schedule up; a planner lowers one
that is missing. Then the live integers are evaluated and the guards checked. No lowering runs for what is known.
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
from .segments import Segment

Dims = tuple[int, ...]
Array = np.ndarray[Any, Any]
Key = tuple[object, ...]  # dims and terms that enter a segment
MAX_SCHEDULES_PER_SEGMENT = 64  # per segment; a schedule is a few hundred small objects


@dataclass(frozen=True, slots=True)
class LoweredCall:
    """What one call of the graph does at these shapes."""

    step: int
    dispatches: tuple[Dispatch, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """What a segment does for one set of live shapes and decisions."""

    segment: Segment
    calls: tuple[LoweredCall, ...]
    dims: dict[int, Dims]  # of what it is given, makes and uses as scratch
    left: dict[int, Dims]  # of what it makes that something else reads
    scalars: dict[int, Term]  # that it makes
    left_scalars: dict[int, Term]  # those of them that something else reads
    decisions: tuple[tuple[Expression, Number], ...]  # it serves calls in which these hold
    slots: tuple[tuple[int, Expression], ...]  # live integers that its kernels read
    guards: tuple[Guard, ...]

    @property
    def dispatches(self) -> list[Dispatch]:
        return [dispatch for call in self.calls for dispatch in call.dispatches]


@dataclass(slots=True)
class CallValues:
    """What the world outside a segment looks like during one call of the method."""

    dims: dict[int, Dims]
    scalars: dict[int, Number]
    arrays: dict[int, Array]
    unsaved: set[int] = field(default_factory=set)  # state that the host has written and nobody has kept yet
    terms: dict[int, Term] = field(default_factory=dict)  # scalars of which more is known than their number

    def term(self, value_id: int, graph: Graph) -> Term:
        """A scalar that enters a segment."""
        term = self.terms.get(value_id)
        return self.given(value_id, graph) if term is None else term

    def given(self, value_id: int, graph: Graph) -> ScalarInput:
        self.scalars[value_id]  # KeyError: nobody gave it
        return ScalarInput(value_id, isinstance(graph.values[value_id], (SymInt, SymBool)))


class ScheduleStore:
    """The schedules of a method's plan, for calls one at a time: not thread safe."""

    def __init__(self, plan: Plan, most: int = MAX_SCHEDULES_PER_SEGMENT) -> None:
        self.plan = plan
        self._schedules = {segment: _Schedules(most) for segment in plan.flow.segments}

    def add(self, key: Key, schedule: Schedule) -> None:
        """A schedule for calls in which these dims and terms enter its segment."""
        self._schedules[schedule.segment].keep(key, schedule)

    def make_room(self, count: int) -> None:
        """Let so many more schedules be kept than usual."""
        for schedules in self._schedules.values():
            schedules.most += count

    def known(self) -> list[tuple[Key, Schedule]]:
        """Every schedule there is, with the dims and terms it is for."""
        return [pair for schedules in self._schedules.values() for pair in schedules.items()]

    def prepare(self, segment: Segment, live: CallValues) -> tuple[Schedule, dict[int, int]]:
        """The schedule for this call, its guards checked, and the live integers its kernels read, by slot.

        From here on the dims and scalars that the segment makes are known in `live`.
        """
        numbers = TermEvaluator(live.arrays, live.scalars)
        graph = self.plan.graph
        try:
            key = (*(live.dims[t] for t in segment.tensors), *(live.term(s, graph) for s in segment.scalars))
        except KeyError as unknown:  # on the way that the jumps took
            raise GraphError(
                f"value {unknown.args[0]} is read before anything wrote it", code="read_before_write"
            ) from None
        schedule = self._schedules[segment].find(key, numbers)
        if schedule is None:
            schedule = self.missing(segment, live, numbers)
            self.add(key, schedule)
        for guard in schedule.guards:
            if (refusal := guard.refusal(numbers)) is not None:
                raise (RangeError if guard.overflow else GuardError)(refusal)
        slots = _slot_values(schedule, numbers)
        leave(schedule, live, numbers, graph)
        return schedule, slots

    def missing(self, segment: Segment, live: CallValues, numbers: TermEvaluator) -> Schedule:
        """A schedule that nobody has asked for before. Here there are none but those that were added."""
        given = self._words(segment, [live.dims[t] for t in segment.tensors])
        known: dict[str, list[str]] = {}  # shapes -> what was decided at them
        for key, schedule in self._schedules[segment].items():
            decided = ", ".join(f"{term} = {number}" for term, number in schedule.decisions)
            known.setdefault(self._words(segment, key[: len(segment.tensors)]), []).append(decided)
        if given in known:
            now = ", ".join(f"{term} = {numbers(term)}" for term in self._decided(segment, given))
            found = f"{given} only with {_listed(known[given]) or 'other scalars'}; now {now or 'with these'}"
        else:
            found = f"{_listed(list(known)) or 'no shapes'}; given was {given}"
        raise ShapeError(
            f"{self.plan.graph.name} runs from schedules that were saved for {found}. "
            "Write it again for these shapes: webpte bundle FILE -o DIR --shapes CALL, or method.save(folder, shapes).",
            code="not_saved",
        )

    def _decided(self, segment: Segment, shapes: str) -> dict[Expression, None]:
        pairs = self._schedules[segment].items()
        return {
            term: None
            for key, schedule in pairs
            if self._words(segment, key[: len(segment.tensors)]) == shapes
            for term, _ in schedule.decisions
        }

    def _words(self, segment: Segment, dims: Sequence[object]) -> str:
        """Shapes that enter a segment, as callers know them."""
        inputs = self.plan.graph.inputs
        names = [f"input {inputs.index(t)}" if t in inputs else f"value {t}" for t in segment.tensors]
        return ", ".join(f"{name} {list(d)}" for name, d in zip(names, dims, strict=True)) or "no tensors"  # type: ignore[call-overload]


def _listed(words: Sequence[str], most: int = 8) -> str:
    return "; ".join(words[:most]) + (f"; and {len(words) - most} more" if len(words) > most else "")


def leave(schedule: Schedule, live: CallValues, numbers: TermEvaluator, graph: Graph) -> None:
    """Tell the rest of the method what a segment makes."""
    live.dims.update(schedule.left)
    for value_id, term in schedule.left_scalars.items():
        live.scalars[value_id] = numbers(term)
        # What stands on more than the inputs may be another number when the method comes by again.
        live.terms[value_id] = term if stands_on(term, graph.inputs) else live.given(value_id, graph)


class _Place(NamedTuple):
    """What selects a schedule: what enters the segment, what was decided on, and the numbers those were."""

    key: Key
    asked: tuple[Expression, ...]
    numbers: tuple[Number, ...]


class _Schedules:
    """The schedules of a segment, by shapes and then by what was decided at them; the oldest go."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._found: OrderedDict[_Place, Schedule] = OrderedDict()
        # What was decided on at these shapes, and by how many schedules.
        self._asked: dict[Key, dict[tuple[Expression, ...], int]] = {}

    def __len__(self) -> int:
        return len(self._found)

    def items(self) -> list[tuple[Key, Schedule]]:
        return [(place.key, schedule) for place, schedule in self._found.items()]

    def find(self, key: Key, numbers: TermEvaluator) -> Schedule | None:
        for asked in self._asked.get(key, ()):
            full = _Place(key, asked, tuple(map(numbers, asked)))
            schedule = self._found.get(full)
            if schedule is not None:
                self._found.move_to_end(full)
                return schedule
        return None

    def keep(self, key: Key, schedule: Schedule) -> None:
        asked = tuple(expression for expression, _ in schedule.decisions)
        uses = self._asked.setdefault(key, {})
        uses[asked] = uses.get(asked, 0) + 1
        self._found[_Place(key, asked, tuple(number for _, number in schedule.decisions))] = schedule
        while len(self._found) > self.most:
            oldest, _ = self._found.popitem(last=False)
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
        raise RangeError(
            f"the kernels would read the live integers {wrong}; the device's have 32 bits", code="live_integer"
        )
    return values
