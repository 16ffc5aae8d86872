"""How much to ask of one submit, by what passes have taken."""

from __future__ import annotations

from collections import Counter

from .speculation import ENOUGH, Costs

LATENCY = 0.05  # seconds between two bursts of text that a reader takes for a stream
MOST_PER_SUBMIT = 8
MOST_SLOWER = 2.0  # times the pass without it, of a pass that also reads a piece of a prompt
SMALLEST_PIECE = 4  # tokens of a prompt: it has to get on, whatever the others wait
TOTALS = (8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # rows of such passes: few, so that shapes repeat


class Pace:
    """Learns from passes; says how many steps to take in one submit, and how much of a prompt to read beside them."""

    def __init__(self) -> None:
        self._least = Costs(min)  # a busy machine must not make a prompt's pieces look dearer than they are
        self._steps: dict[int, int] = {}
        self._runs: Counter[int] = Counter()  # of so many rows

    def note(self, rows: int, steps: int, seconds: float) -> None:
        """A submit of so many steps of so many rows took so long."""
        self._least.note(rows, seconds / steps)
        self._runs[rows] += 1
        fitting = int(LATENCY * steps / seconds) if seconds > 0 else MOST_PER_SUBMIT
        self._steps[rows] = max(1, min(fitting, 2 * steps, MOST_PER_SUBMIT))

    def steps(self, rows: int) -> int:
        """Several where a step is short, one where a reader would notice."""
        return self._steps.get(rows, 1)

    def piece(self, decoding: int, most: int) -> int:
        """Tokens of prompts to read in a pass with so many rows that others wait for, of `most` in all."""
        if decoding == 0:
            return most
        plain = self._least.seconds(decoding) or 0.0
        measured = max((rows for rows, runs in self._runs.items() if runs >= ENOUGH), default=0)
        found = max(SMALLEST_PIECE, decoding)  # twice the rows take at most twice as long
        for total in TOTALS:
            seconds = self._least.seconds(total)
            # What a pass of far more rows takes than any before is not guessed: they grow one after the other.
            if seconds is None or seconds > MOST_SLOWER * plain or total > 2 * max(measured, decoding):
                break
            found = max(found, total - decoding)
        return min(found, most - decoding)
