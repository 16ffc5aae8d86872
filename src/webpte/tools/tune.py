"""Finding the fastest kernels for a program on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ..progress import OnProgress, ignore
from ..runtime import Choice, choices_path, load

PathLike = str | os.PathLike[str]


def tune_file(
    path: PathLike,
    data: Iterable[PathLike] = (),
    *,
    budget: float | None = None,
    again: bool = False,
    progress: OnProgress = ignore,
) -> dict[str, Any]:
    """Measure every method's jobs that were not measured before on this device; later loads use what was found."""
    with load(path, data, progress=progress) as program:
        methods = [name for name in program.method_names if program.graph(name).steps]
        found = {name: program.tune(name, budget=budget, again=again, progress=progress) for name in methods}
    jobs = [{"method": name, **_job(choice)} for name, choices in found.items() for choice in choices]
    return {"file": os.fspath(path), "stored": str(choices_path()), "jobs": jobs}


def _job(choice: Choice) -> dict[str, Any]:
    default = choice.job.names[0]
    return {
        "job": choice.job.key,
        "uses": choice.uses,
        "default": default,
        "best": choice.best,
        "seconds": choice.seconds,
        "speedup": choice.seconds.get(default, 0.0) / choice.seconds[choice.best],
    }
