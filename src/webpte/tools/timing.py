"""Measure time: stages of loading, calls, and their distribution."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from ..progress import OnProgress, Progress, ignore

T = TypeVar("T")


class Stages:
    """A progress callback that measures each stage of loading. The first stage is finding the adapter."""

    AFTER: ClassVar = {"read": "plan"}  # the stage between the last event of a stage and the first of the next

    def __init__(self, progress: OnProgress = ignore) -> None:
        self._next = progress
        self._began = self._entered = time.perf_counter()
        self._stage = "adapter"
        self.seconds: dict[str, float] = {}
        self.total = 0.0

    def __call__(self, event: Progress) -> None:
        self._enter(event.stage)
        if event.done >= event.total:
            self._enter(self.AFTER.get(event.stage, "prepare"))
        self._next(event)

    def end(self) -> None:
        self._enter("")
        self.total = time.perf_counter() - self._began

    def _enter(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[self._stage] = self.seconds.get(self._stage, 0.0) + now - self._entered
        self._stage, self._entered = stage, now


def timed(function: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds of a call and its result."""
    started = time.perf_counter()
    result = function()
    return time.perf_counter() - started, result


def spread(seconds: Sequence[float]) -> dict[str, Any] | None:
    """Return count, median, minimum and 90th percentile; None without calls."""
    if not seconds:
        return None
    return {
        "calls": len(seconds),
        "median": float(np.median(seconds)),
        "min": min(seconds),
        "p90": float(np.quantile(seconds, 0.9)),
    }
