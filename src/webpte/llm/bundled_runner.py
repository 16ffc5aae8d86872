"""A bundled language model as a runner of many sequences, at the few numbers of rows that were planned.

There are passes that read pieces of prompts, and passes that choose a token behind each row, which are of different
slots then. What the engine asks for in one pass becomes several of these.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..progress import OnProgress, ignore
from ..runtime import Bundle, Method
from ..runtime.manifest import Language
from .choice import Choice, Chosen, pack, unpack, wanted
from .metadata import vocabulary
from .rows import Pick, Row
from .sampled import LOGITS, MOST_EDITS, SETTINGS, TOKEN, mask_words
from .slot_pool import SlotPool

IDLE = Row(0, -1, 0)
PASS_COST = 8  # rows: what a pass takes besides its rows, roughly


class BundledRunner(SlotPool):
    """Runs rows of any slots with the schedules that a bundle has."""

    most_drafts = 0  # each would be a pass of its own

    def __init__(self, bundle: Bundle, language: Language, most_slots: int, progress: OnProgress = ignore) -> None:
        self._bundle = bundle
        self._language = language
        self._slot_counts = sorted({v.slots for v in bundle.manifest.methods["forward"] if v.slots is not None})
        super().__init__(bundle, min(most_slots, self._slot_counts[-1]), progress)
        self.capacity = language.context
        self.most_rows = language.prompt_rows[-1]
        self.most_picks = language.decode_rows[-1]
        masks = mask_words(vocabulary(self.method))
        spare = [words // rows - len(SETTINGS) - masks for rows, words in language.choice_words.items()]
        self.most_edits = min(MOST_EDITS, *(words // 4 for words in spare))

    def make(self, slots: int, progress: OnProgress) -> Method:
        return self._bundle.method("forward", progress=progress, slots=slots)

    def slots_for(self, wanted: int) -> int:
        return next(slots for slots in self._slot_counts if slots >= wanted)

    def run(self, rows: Sequence[Row], picks: Sequence[Pick]) -> list[Chosen]:
        self.check_places(rows)
        choices = {pick.row: pick.choice for pick in picks}
        found: dict[int, Chosen] = {}
        left: dict[int, deque[int]] = {}  # by slot, in their order
        for number, row in enumerate(rows):
            left.setdefault(row.slot, deque()).append(number)
        while any(left.values()):
            self._read([rows[n] for numbers in left.values() for n in _taken_until(numbers, choices)])
            heads = [numbers.popleft() for numbers in left.values() if numbers]
            for first in range(0, len(heads), self._most_decoded):
                piece = heads[first : first + self._most_decoded]
                chosen = self._decode([rows[n] for n in piece], [choices[n] for n in piece])
                found.update(zip(piece, chosen, strict=False))  # behind them stand those of idle rows
        return [found[pick.row] for pick in picks]

    def run_steps(self, rows: Sequence[Row], picks: Sequence[Pick], count: int) -> list[list[Chosen]]:
        if [pick.row for pick in picks] != list(range(len(rows))):
            raise InputError("steps choose a token for every row, in order")
        self.check_places(rows, count)
        choices = [pick.choice for pick in picks]
        tokens, places, singles, picked, _, *packed = self._deciding(rows, choices)
        steps = [(tokens, places, singles, picked, advance, *packed) for advance in range(count)]
        found = self.method.run_steps(steps, {TOKEN: 0}, wanted(choices))
        return [unpack(step)[: len(rows)] for step in found]

    def logits(self, rows: Sequence[Row], count: int = 1) -> np.ndarray[Any, Any]:
        self.check_places(rows)
        self._read(rows[:-count])
        found = []
        for row in rows[len(rows) - count :]:  # those of a pass that chooses are of different slots
            (logits,) = self.method.run(self._deciding([row], [Choice()]), outputs=(LOGITS,))
            found.append(np.asarray(logits)[0])
        return np.stack(found)  # (count, V)

    @property
    def _most_decoded(self) -> int:
        """Rows of a pass that chooses: a method of fewer slots has none for more."""
        return max(rows for rows in self._language.decode_rows if rows <= self.slots)

    def _read(self, rows: Sequence[Row]) -> None:
        """Cache rows."""
        start = 0
        for size in split(len(rows), self._language.prompt_rows):
            piece = _padded(rows[start : start + size], size)
            picked = np.zeros(1, np.int32)  # a pass has logits of at least one row
            self.method.run((*_table(piece), 0, picked, 0, *pack([Choice()])), outputs=())
            start += size

    def _decode(self, rows: Sequence[Row], choices: Sequence[Choice]) -> list[Chosen]:
        return unpack(self.method.run(self._deciding(rows, choices), outputs=wanted(choices)))

    def _deciding(self, rows: Sequence[Row], choices: Sequence[Choice]) -> tuple[Any, ...]:
        """Arguments of a pass that chooses a token behind each row."""
        size = next(size for size in self._language.decode_rows if size >= len(rows))
        chosen = pack([*choices, *[Choice()] * (size - len(rows))], self._language.choice_words[size])
        return (*_table(_padded(rows, size)), size, np.arange(size, dtype=np.int32), 0, *chosen)


def _taken_until(numbers: deque[int], picked: Iterable[int]) -> list[int]:
    """Take those before the first that is picked."""
    taken = []
    while numbers and numbers[0] not in picked:
        taken.append(numbers.popleft())
    return taken


def _padded(rows: Sequence[Row], size: int) -> list[Row]:
    return [*rows, *[IDLE] * (size - len(rows))]


def _table(rows: Sequence[Row]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    table = np.array(rows, np.int64)  # (R, 3)
    return table[None, :, 0], table[:, 1:].astype(np.int32)


@functools.cache
def split(count: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """So many rows as passes of given sizes, the last with idle rows: those that cost the least."""
    largest = sizes[-1]
    whole = max(0, count // largest - 1)  # so that few numbers are looked at
    best: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    for rest in range(1, count - whole * largest + 1):
        options = [(size + PASS_COST + best[max(0, rest - size)][0], size) for size in reversed(sizes)]
        cost, size = min(options, key=lambda option: option[0])
        best.append((cost, (size, *best[max(0, rest - size)][1])))
    return (*[largest] * whole, *best[-1][1])
