"""Finding the fastest kernels for a program on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Any

from ..progress import OnProgress, ignore
from ..runtime import Choice, choices_path, load

PathLike = str | os.PathLike[str]
AT_ONCE = 1e-9  # seconds that are left when all are spent: enough to tell what was not measured


def tune_file(
    path: PathLike,
    data: Iterable[PathLike] = (),
    *,
    budget: float | None = None,
    again: bool = False,
    progress: OnProgress = ignore,
) -> dict[str, Any]:
    """Measure every method's jobs that were not measured before on this device; later loads use what was found.

    `budget` is in seconds, for all methods together. `left` are the jobs that it did not suffice for.
    """
    jobs: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    started = time.perf_counter()
    with load(path, data, progress=progress) as program:
        for name in (name for name in program.method_names if program.graph(name).steps):
            rest = None if budget is None else max(AT_ONCE, budget - (time.perf_counter() - started))
            found = program.tune(name, budget=rest, again=again, progress=progress)
            jobs += [{"method": name, **_job(choice)} for choice in found]
            left += [{"method": name, "job": job.key} for job in found.left]
    return {"file": os.fspath(path), "stored": str(choices_path()), "jobs": jobs, "left": left}


def _job(choice: Choice) -> dict[str, Any]:
    return {
        "job": choice.job.key,
        "uses": choice.uses,
        "default": choice.usual,
        "best": choice.best,
        "seconds": choice.seconds,
        "gain": choice.gain,
    }
