"""A program for one sequence as a runner of many: its graph rewritten, its caches a pool of slots that can grow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..graph import DType, Graph
from ..progress import OnProgress, ignore
from ..runtime import Method, Program
from .choice import Choice, Chosen, pack, unpack, wanted
from .metadata import context
from .rows import Pick, Row
from .sampled import LOGITS, MOST_EDITS, TOKEN
from .slot_pool import SlotPool
from .slots import PICKED, TOKENS, with_sampled_slots

FEW = 8  # rows, up to which every number of them has a pass of its own
STEP = 4  # between numbers of rows beyond it, where prompts are read
NOBODY = Pick(0, Choice())  # a pass has logits of at least one row


class SlotRunner(SlotPool):
    """Runs rows of any slots side by side. Raises UnsupportedError for a program that cannot be rewritten."""

    def __init__(
        self,
        program: Program,
        most_slots: int,
        cache: DType | None = None,
        progress: OnProgress = ignore,
    ) -> None:
        self._cache = cache
        super().__init__(program, most_slots, progress)
        self.capacity = context(program, self.method.plan)
        self.most_rows = _bound(self.method, TOKENS)[1]
        self.most_picks = _bound(self.method, PICKED)[0]
        self.most_drafts = self.most_picks - 1
        self.most_edits = MOST_EDITS

    def make(self, slots: int, progress: OnProgress) -> Method:
        rewrite: Callable[[Graph], Graph] = lambda graph: with_sampled_slots(graph, slots, self._cache)  # noqa: E731
        return self.program.method("forward", rewrite, progress)

    def run(self, rows: Sequence[Row], picks: Sequence[Pick]) -> list[Chosen]:
        if not picks:
            self.method.run(self._arguments(rows, (NOBODY,)), outputs=())
            return []
        choices = [pick.choice for pick in picks]
        return unpack(self.method.run(self._arguments(rows, picks), outputs=wanted(choices)))

    def run_steps(self, rows: Sequence[Row], picks: Sequence[Pick], count: int) -> list[list[Chosen]]:
        if [pick.row for pick in picks] != list(range(len(rows))):
            raise InputError("steps choose a token for every row, in order")
        tokens, places, singles, picked, _, *packed = self._arguments(rows, picks, count)
        steps = [(tokens, places, singles, picked, advance, *packed) for advance in range(count)]
        choices = [pick.choice for pick in picks]
        return [unpack(found) for found in self.method.run_steps(steps, {TOKEN: 0}, wanted(choices))]

    def _arguments(self, rows: Sequence[Row], picks: Sequence[Pick], steps: int = 1) -> tuple[Any, ...]:
        if len(rows) > self.most_rows or len(picks) > self.most_picks:
            raise InputError(
                f"a pass has at most {self.most_rows} rows and gives the logits of {self.most_picks}; "
                f"here are {len(rows)} and {len(picks)}"
            )
        self.check_places(rows, steps)
        table = np.array(rows, np.int64)  # (R, 3)
        singles = _singles(rows)
        if idle := self._idle_rows(len(rows), singles):
            table = np.concatenate([table, np.tile((0, -1, 0), (idle, 1))])
        picked = np.array([pick.row for pick in picks], np.int32)
        chosen = pack([pick.choice for pick in picks])
        return (table[None, :, 0], table[:, 1:].astype(np.int32), singles, picked, 0, *chosen)

    def _idle_rows(self, rows: int, singles: int) -> int:
        """How many to add where a prompt is read: few numbers of rows, for the first pass of each takes longer."""
        fitting = min(-rows % STEP, self.most_rows - rows)
        return fitting if singles < rows and rows > FEW else 0

    def logits(self, rows: Sequence[Row], count: int = 1) -> np.ndarray[Any, Any]:
        found, start = [], 0
        for first in range(len(rows) - count, len(rows), self.most_picks):
            end = min(first + self.most_picks, len(rows))
            picks = [NOBODY._replace(row=row - start) for row in range(first, end)]
            (piece,) = self.method.run(self._arguments(rows[start:end], picks), outputs=(LOGITS,))  # (picks, V)
            found.append(np.asarray(piece))
            start = end
        return np.concatenate(found)


def _singles(rows: Sequence[Row]) -> int:
    """How many of the first rows are followed by one of another slot."""
    pairs = itertools.pairwise(rows)
    return next((index for index, (row, after) in enumerate(pairs) if row.slot == after.slot), len(rows))


def _bound(method: Method, number: int) -> tuple[int, ...]:
    bound = method.inputs[number].bound
    assert bound is not None  # with_slots takes no other program
    return bound
