"""One event for everything that takes long: loading, exporting, tuning."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Progress:
    """How far a stage is. The total is known before the first event of a stage."""

    stage: str  # "compile", "upload", ...
    done: int
    total: int
    unit: str  # "kernels", "bytes", "steps"


OnProgress = Callable[[Progress], None]


def ignore(event: Progress) -> None:
    """For callers who do not want to know."""
