"""What the host does during a call: stretches of time with a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Stretch:
    """A stretch of the host's time, in nanoseconds of `time.perf_counter_ns`."""

    name: str
    begin: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.begin


def times_by_name(spans: Sequence[Stretch]) -> dict[str, int]:
    """Nanoseconds by name of spans that follow each other."""
    totals: dict[str, int] = {}
    for span in spans:
        totals[span.name] = totals.get(span.name, 0) + span.duration
    return totals
