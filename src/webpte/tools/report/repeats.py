"""Repetition in a line of calls. Files do not name modules, but the layers of a model are equal runs of calls."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

Repeat = tuple[int, int]  # first, one past the last
MIN_KINDS = 4  # a run of fewer different calls is read as quickly as a headline
MAX_PERIOD = 1000


def find_repeats(signatures: Sequence[Hashable], crossings: Sequence[int]) -> list[list[Repeat]]:
    """Groups of consecutive spans whose calls look the same, in order.

    `crossings[i]` counts the values alive between call i - 1 and call i. A layer can be cut anywhere and still repeat:
    it is cut where the least crosses, which is where its author would have cut it.
    """
    numbers: dict[Hashable, int] = {}
    ids = np.array([numbers.setdefault(s, len(numbers)) for s in signatures], np.int64)
    return sorted(_search(ids, np.asarray(crossings), 0, len(ids)))


def _search(ids: Any, crossings: Any, low: int, high: int) -> list[list[Repeat]]:
    """The repetition that covers most of [low, high), then those on either side of it."""
    found = _longest(ids[low:high])
    if found is None:
        return []
    first, stop, period = found[0] + low, found[1] + low, found[2]
    spans = _cut(crossings, first, stop, period)
    pattern = ids[spans[0][0] : spans[0][1]]
    # What all layers share (a mask, the cosines of the positions) is computed in the first one, and what follows the
    # last layer may have moved up into it.
    start = spans[0][0]
    if length := _length_with_extras(pattern[::-1], ids[low:start][::-1]):
        spans.insert(0, (start - length, start))
    stop = spans[-1][1]
    if length := _length_with_extras(pattern, ids[stop:high]):
        spans.append((stop, stop + length))
    before = _search(ids, crossings, low, spans[0][0])
    return [*before, spans, *_search(ids, crossings, spans[-1][1], high)]


def _longest(ids: Any) -> tuple[int, int, int] | None:
    """First, stop and period of the periodic stretch that holds the most whole periods; the shortest period wins."""
    best, covered = None, 0
    for period in range(MIN_KINDS, min(len(ids) // 2, MAX_PERIOD) + 1):
        equal = np.concatenate(([False], ids[:-period] == ids[period:], [False]))
        edges = np.flatnonzero(equal[1:] != equal[:-1]).reshape(-1, 2)
        for start, end in edges[edges[:, 1] - edges[:, 0] >= period]:
            whole = (end - start + period) // period * period
            if whole > covered and len(np.unique(ids[start : start + period])) >= MIN_KINDS:
                best, covered = (int(start), int(end) + period, period), whole
    return best


def _cut(crossings: Any, first: int, stop: int, period: int) -> list[Repeat]:
    """Whole periods of a stretch. Of equally good cuts the last wins: models begin with extras more often."""
    # The cut between the first and the second span stands for all: the stretch is periodic.
    starts = range(first, min(first + period, stop - 2 * period + 1))
    start = min(starts, key=lambda s: (crossings[s + period], -((stop - s) // period), -s))
    return [(at, at + period) for at in range(start, stop - period + 1, period)]


def _length_with_extras(pattern: Any, ids: Any) -> int:
    """How many of `ids` it takes to find all of the pattern in order, with a few others in between; 0 if it is not."""
    spare = len(pattern) // 3
    at = 0
    for wanted in pattern:
        while at < len(ids) and ids[at] != wanted and spare:
            at, spare = at + 1, spare - 1
        if at == len(ids) or ids[at] != wanted:
            return 0
        at += 1
    return at
