"""Whether drafts are worth their rows: what passes cost, how often drafts were right, and an account that bounds the
loss.

A pass over two rows costs less than two passes over one, so a drafted token that is verified beside the one before it
saves time if it is right often enough. How often is known without running anything: every token that is chosen tells
whether the draft would have been right. So nothing is spent to find out that a text does not repeat itself.
"""

from __future__ import annotations

import bisect
import statistics
from collections import deque
from collections.abc import Callable, Iterable

from .lookup import SHORTEST, Lookup

COUNTS = (1, 3, 7, 15)  # drafts in a pass: few numbers, because a new number of rows has to be prepared
MOST = COUNTS[-1]
KEPT = 9  # latest passes by number of rows, of which the median counts
ENOUGH = 3  # of them: fewer may all have been unlucky, or the first, which compiles
STALE = 500  # passes after which a number of rows that was not seen is unknown again
SLOPE = 0.25  # of the cost of a pass, for a row more, until it is measured
WORTH = 1.05  # expected gain below which nothing is drafted: estimates err
LOSS = 0.02  # of a sequence's time, that drafts may have cost before there are no more,
OVERDRAFT = 0.5  # and of a pass, that one of them may cost beyond that
MEMORY = 0.95  # weight of what was learned, with each thing learned since
BELIEF = 2.0  # weight of what is believed before anything is learned


class Costs:
    """Seconds of a pass by its number of rows, as measured lately. For all sequences of a model."""

    def __init__(self, of: Callable[[Iterable[float]], float] = statistics.median) -> None:
        self._of = of  # the latest
        self._latest: dict[int, deque[float]] = {}
        self._medians: dict[int, float] = {}
        self._known: list[int] = []  # the numbers of rows that have one, in order
        self._seen: dict[int, int] = {}  # the pass at which a number of rows was there last
        self._passes = 0

    def note(self, rows: int, seconds: float) -> None:
        """A pass was run."""
        self._passes += 1
        self._seen[rows] = self._passes
        latest = self._latest.setdefault(rows, deque(maxlen=KEPT))
        latest.append(seconds)
        if len(latest) >= ENOUGH:
            if rows not in self._medians:
                bisect.insort(self._known, rows)
            self._medians[rows] = self._of(latest)
        if self._passes % STALE == 0:
            self._forget()

    def _forget(self) -> None:
        """What was not seen for long was measured on other contexts, or in a busy moment."""
        for rows in [rows for rows, seen in self._seen.items() if self._passes - seen >= STALE]:
            del self._latest[rows], self._seen[rows]
            self._medians.pop(rows, None)
        self._known = sorted(self._medians)

    def seconds(self, rows: int) -> float | None:
        """What a pass of so many rows takes; None before anything is known."""
        if rows in self._medians:
            return self._medians[rows]
        if not self._known:
            return None
        at = bisect.bisect(self._known, rows)
        if at == 0:
            return self._medians[self._known[0]]
        below = self._known[at - 1]
        if len(self._known) == 1:
            return self._medians[below] * (1 + SLOPE * (rows - below) / below)
        left, right = (below, self._known[at]) if at < len(self._known) else (self._known[0], below)
        slope = (self._medians[right] - self._medians[left]) / (right - left)
        return self._medians[below] + max(0.0, slope) * (rows - below)  # times cross where the machine was busy


class Speculation:
    """Drafts for one sequence: as many as pay, or with `always` whenever there are any."""

    def __init__(self, costs: Costs, prompt: Iterable[int], always: bool = False) -> None:
        self._costs = costs
        self._always = always
        self._lookup = Lookup(prompt)
        self._right: dict[int, float] = {}  # by how much of the text was the same: drafts that were right
        self._tried: dict[int, float] = {}  # of so many
        self._balance = 0.0  # seconds that drafts have saved
        self._seconds = 0.0  # that passes with and without them took
        self._run = 0  # drafts that were right when some were verified last
        self.drafted = self.accepted = 0

    def add(self, token: int) -> None:
        """A token was chosen."""
        if self._lookup.length:
            bucket = _bucket(self._lookup.length)
            right = self._lookup.draft(1) == (token,)
            self._right[bucket] = MEMORY * self._right.get(bucket, 0.0) + right
            self._tried[bucket] = MEMORY * self._tried.get(bucket, 0.0) + 1
        self._lookup.add((token,))

    def draft(self, rows: int, most: int) -> tuple[int, ...]:
        """What to verify beside the last token, in a pass that has `rows` rows without it."""
        if not self._lookup.length:
            return ()
        if self._always:
            return self._lookup.draft(usual(most))
        # Many only behind fewer that were all right: one large mistake costs more than small ones have saved.
        return self._lookup.draft(self._worth(rows, usual(min(most, 2 * self._run + 1))))

    def note(self, rows: int, drafted: int, accepted: int, seconds: float) -> None:
        """A pass of `rows` rows and `drafted` more was run; so many of the drafts were right."""
        self.drafted += drafted
        self.accepted += accepted
        plain, full = self._costs.seconds(rows), self._costs.seconds(rows + drafted)
        if drafted:
            self._run = accepted
        if plain is None or full is None:
            return
        self._seconds += full
        if drafted:  # what takes far longer than expected has compiled, which says nothing of the next
            self._balance += plain * accepted / rows - (min(seconds, 3 * full) - plain)

    def _worth(self, rows: int, most: int) -> int:
        """How many drafts make the most of a pass: tokens by its seconds, of all its sequences."""
        plain = self._costs.seconds(rows)
        if plain is None:
            return 0
        best, count = WORTH * rows / plain, 0
        expected, chance = float(rows), 1.0
        credit = self._balance + LOSS * self._seconds
        if credit < 0:
            return 0
        for drafts in range(1, most + 1):
            chance *= self._chance(self._lookup.length + drafts - 1)
            expected += chance
            cost = self._costs.seconds(rows + drafts) or plain
            if cost - plain > credit + OVERDRAFT * plain:
                break
            if drafts in COUNTS and expected / cost > best:
                best, count = expected / cost, drafts
        return count

    def _chance(self, length: int) -> float:
        """That a draft is right where so much of the text is the same."""
        bucket = _bucket(length)
        believed = BELIEF * length / (length + 4)
        return (self._right.get(bucket, 0.0) + believed) / (self._tried.get(bucket, 0.0) + BELIEF)


def usual(most: int) -> int:
    """The largest number of drafts that is made, up to `most`."""
    return max((count for count in COUNTS if count <= most), default=0)


def _bucket(length: int) -> int:
    """Lengths that are alike: 2, 3, 4 to 5, 6 to 9, 10 to 17 ..."""
    return (length - SHORTEST).bit_length()
