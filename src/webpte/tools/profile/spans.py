"""What the host does during a call, by its functions' own clock.

The functions are wrapped while a profile is taken and are themselves again afterwards: a call that nobody watches pays
nothing. A name that is no longer there raises at once.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

Target = tuple[object, str, str]  # an object, the name of one of its methods, what to call the time spent in it


@dataclass(frozen=True)
class Span:
    """A stretch of the host's time, in nanoseconds of `time.perf_counter_ns`."""

    name: str
    begin: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.begin


@contextmanager
def watched(targets: Sequence[Target], spans: list[Span]) -> Iterator[None]:
    """Note every call of the targets in `spans`, when it ends."""
    replaced: list[tuple[object, str]] = []
    try:
        for target, attribute, name in targets:
            setattr(target, attribute, _timed(getattr(target, attribute), name, spans))
            replaced.append((target, attribute))
        yield
    finally:
        for target, attribute in replaced:
            delattr(target, attribute)  # the class's own method shows again


def _timed(function: Any, name: str, spans: list[Span]) -> Any:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter_ns()
        try:
            return function(*args, **kwargs)
        finally:
            spans.append(Span(name, begin, time.perf_counter_ns()))

    return call


def own_times(spans: Sequence[Span]) -> dict[str, int]:
    """Nanoseconds by name, each without what the spans inside it took."""
    totals: dict[str, int] = {}
    open_: list[Span] = []
    for span in sorted(spans, key=lambda s: (s.begin, -s.end)):
        while open_ and open_[-1].end <= span.begin:
            open_.pop()
        if open_:
            totals[open_[-1].name] -= span.duration
        totals[span.name] = totals.get(span.name, 0) + span.duration
        open_.append(span)
    return totals
