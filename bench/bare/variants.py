"""A way to do a job, and how the best one is found."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..problems import Array, Problem
from .engine import Commands, Engine

TOLERANCE = 1e-4


@dataclass(frozen=True)
class Variant:
    """`run` does the whole job once and returns what it read back."""

    name: str
    run: Callable[[], list[Array]]


def recorded(engine: Engine, name: str, commands: Commands) -> Variant:
    """Return a variant that is one submit; what it reads back is f32."""
    return Variant(name, lambda: [data.view(np.float32) for data in engine.run(commands)])


def right(variants: Sequence[Variant], problem: Problem) -> list[Variant]:
    """Those whose result is what NumPy says. A kernel may rely on subgroups of 8, which not every adapter has."""
    return [variant for variant in variants if problem.error(variant.run()) <= TOLERANCE]


def calibrate(variants: Sequence[Variant], rounds: int) -> dict[str, float]:
    """Median seconds of each, taken in turns so that a disturbance meets all of them."""
    seconds: dict[str, list[float]] = {variant.name: [] for variant in variants}
    for _ in range(rounds):
        for variant in variants:
            started = time.perf_counter()
            variant.run()
            seconds[variant.name].append(time.perf_counter() - started)
    return {name: statistics.median(taken) for name, taken in seconds.items()}
