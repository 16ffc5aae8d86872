"""How long each stage of an export takes, and how much memory the process had by its end."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

from ..progress import OnProgress, Progress


@dataclass
class Stage:
    name: str
    seconds: float
    peak_memory: int | None  # bytes of the process so far, at most; None where the system does not tell


class Clock:
    """Given as `progress`, passes every event on. A stage ends where another begins."""

    def __init__(self, progress: OnProgress) -> None:
        self._progress = progress
        self._began = time.perf_counter()
        self._stages: dict[str, Stage] = {}
        self._running: str | None = None

    def __call__(self, event: Progress) -> None:
        if event.stage != self._running:
            self._end()
            self._running = event.stage
        self._progress(event)

    def stages(self) -> list[Stage]:
        """Up to now, in the order they began."""
        self._end()
        return list(self._stages.values())

    def _end(self) -> None:
        now = time.perf_counter()
        if self._running is not None:
            stage = self._stages.setdefault(self._running, Stage(self._running, 0.0, None))
            stage.seconds += now - self._began
            stage.peak_memory = peak_memory()
        self._began = now


def peak_memory() -> int | None:
    """Of this process since it began, in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
