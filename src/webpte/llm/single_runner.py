"""A program for one sequence as a runner: one slot, whose cache is the method's state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..runtime import Method
from .choice import Choice, Chosen, pack, unpack, wanted
from .reach import Reach
from .rows import Pick, Row
from .sampled import LOGITS, MOST_EDITS, TOKEN

ANY = Choice()  # where nobody asks which token is chosen


class SingleRunner:
    """One sequence at a time: several take turns, and whoever comes back is computed again."""

    slots = 1
    most_slots = 1
    most_picks = 1
    most_drafts = 0
    most_edits = MOST_EDITS

    def __init__(self, method: Method, capacity: int, reach: Reach | None = None, refusal: str | None = None) -> None:
        self.method = method
        self.capacity = capacity
        self.reach = reach
        self.refusal = refusal
        self.most_rows = method.inputs[0].bound[1] if method.inputs[0].bound else 1

    @property
    def recoveries(self) -> int:
        return self.method.recoveries

    def run(self, rows: Sequence[Row], picks: Sequence[Pick]) -> list[Chosen]:
        self._begin(rows)
        found, start = [], 0
        for pick in picks:  # the sampler stands behind the last row
            choices = [pick.choice]
            piece = rows[start : pick.row + 1]
            found += unpack(self.method.run(_arguments(piece, pick.choice), outputs=wanted(choices)))
            start = pick.row + 1
        if start < len(rows):
            self.method.run(_arguments(rows[start:], ANY), outputs=())
        return found

    def run_steps(self, rows: Sequence[Row], picks: Sequence[Pick], count: int) -> list[list[Chosen]]:
        self._begin(rows)
        choice = picks[0].choice
        steps = [_arguments(rows, choice, advance) for advance in range(count)]
        return [unpack(found) for found in self.method.run_steps(steps, {TOKEN: 0}, wanted([choice]))]

    def logits(self, rows: Sequence[Row], count: int = 1) -> np.ndarray[Any, Any]:
        self._begin(rows)
        found, start = [], 0
        for last in range(len(rows) - count, len(rows)):  # a call gives those behind its last row
            (row,) = self.method.run(_arguments(rows[start : last + 1], ANY), outputs=(LOGITS,))
            found.append(np.asarray(row).reshape(-1))
            start = last + 1
        return np.stack(found)  # (count, V)

    def _begin(self, rows: Sequence[Row]) -> None:
        """A state that is not told apart by positions would still be that of another text."""
        if self.reach is not None and rows[0].position == 0:
            self.method.reset()

    def copy(self, source: int, target: int, count: int) -> None:
        raise AssertionError("there is one slot")

    def grow(self, slots: int) -> None:
        raise AssertionError("there is one slot")

    def sizes(self, count: int) -> list[int]:
        return self.method.state_sizes()

    def read(self, slot: int, count: int) -> list[memoryview]:
        return self.method.read_state()

    def write(self, slot: int, count: int, pieces: Sequence[memoryview]) -> None:
        self.method.write_state(pieces)


def _arguments(rows: Sequence[Row], choice: Choice, advance: int = 0) -> tuple[Any, ...]:
    tokens = np.array([[row.token for row in rows]], np.int64)
    return (tokens, np.array([rows[0].position + advance], np.int64), advance, *pack([choice]))
