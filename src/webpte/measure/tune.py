"""Tune a program: measure the kernels of its jobs on this machine, and store the fastest."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import Annotated, TypedDict

from ..progress import OnProgress, ignore
from ..runtime import TunedKernel, load_program, tuning_cache_path
from ..typing import PathLike


class TunedJob(TypedDict):
    """A job and its kernels."""

    method: str
    job: Annotated[str, "an op and its shape"]
    uses: int
    default: Annotated[str, "the usual kernel"]
    best: Annotated[
        str,
        "the selected kernel: the default unless another was faster in six of seven rounds and by 5 % in the median",
    ]
    seconds: Annotated[dict[str, float], "median by kernel, the shortest first"]
    gain: Annotated[float, "of the best over the usual kernel, 1 if they are the same"]


class UnmeasuredJob(TypedDict):
    """A job that was not measured."""

    method: str
    job: str


class TuneReport(TypedDict):
    """The kernels that were measured for a program."""

    file: str
    stored: Annotated[str, "the file that later loads read"]
    jobs: Annotated[list[TunedJob], "the jobs measured now"]
    left: Annotated[list[UnmeasuredJob], "jobs that --seconds did not suffice for"]
    unconfirmed: Annotated[list[str], "jobs that keep their default, because a second measurement chose another kernel"]
    busy: Annotated[str | None, "the load of a busy machine"]


MIN_BUDGET_SECONDS = 1e-9  # when the time is up: enough to list the jobs that were not measured


def tune_file(
    path: PathLike,
    data: Iterable[PathLike] = (),
    *,
    budget: float | None = None,
    force: bool = False,
    progress: OnProgress = ignore,
) -> TuneReport:
    """Measure the jobs of every method that were not measured before on this device, and store the fastest kernels.

    `budget` is in seconds, for all methods together; `left` lists the jobs it did not suffice for. `force` also
    measures jobs that were measured before. `unconfirmed` lists jobs that keep their default, because a second
    measurement did not choose the same kernel as the first. `busy` is the load of a machine that other work slows.
    """
    jobs: list[TunedJob] = []
    left: list[UnmeasuredJob] = []
    unconfirmed: list[str] = []
    busy = machine_load()
    started = time.perf_counter()
    with load_program(path, data, progress=progress) as program:
        for name in (name for name in program.method_names if program.graph(name).steps):
            rest = None if budget is None else max(MIN_BUDGET_SECONDS, budget - (time.perf_counter() - started))
            choices = program.tune(name, budget=rest, again=force, progress=progress)
            jobs += [_job(name, choice) for choice in choices]
            left += [{"method": name, "job": job.key} for job in choices.unmeasured]
            unconfirmed += [choice.job.key for choice in choices if not choice.confirmed]
    return {
        "file": os.fspath(path),
        "stored": str(tuning_cache_path()),
        "jobs": jobs,
        "left": left,
        "unconfirmed": unconfirmed,
        "busy": busy,
    }


def machine_load() -> str | None:
    """Return the load average if it exceeds half the cores: measurements may then be wrong."""
    cores = os.cpu_count() or 1
    load_average = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return f"load average {load_average:.1f} on {cores} cores" if load_average > cores / 2 else None


def _job(method: str, choice: TunedKernel) -> TunedJob:
    return {
        "method": method,
        "job": choice.job.key,
        "uses": choice.uses,
        "default": choice.usual,
        "best": choice.best,
        "seconds": choice.seconds,
        "gain": choice.gain,
    }
