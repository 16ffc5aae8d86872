"""One interleaved run: every contender once, then every contender again, so that a disturbance meets all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .problems import Problem
from .results import Result
from .rows import Row
from .workers import PREPARE_SECONDS, RUN_SECONDS, Worker, WorkerError

Say = Callable[[str], None]
LONG_SECONDS = 30.0  # the one that has needed longer than that in a row is asked no more,
LEAST_RUNS = 3  # once it has that many runs: a whole bench should take minutes


@dataclass(frozen=True)
class Seat:
    """A contender and what it does in a run: the row, or a row that serves as its unit."""

    worker: Worker
    row: Row


def measure(title: str, seats: Mapping[str, Seat], repeat: int, say: Say) -> dict[str, Result]:
    """Prepare everyone, check what they compute, then time them in turns."""
    results: dict[str, Result] = {}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        for name, seat in seats.items():
            say(f"{title}: {name}")
            results[name] = prepare(seat, Path(scratch))
    ready = {name: seats[name].worker for name, result in results.items() if result.cannot is None}
    for name, taken in time_in_turns(ready, repeat, lambda turn: say(f"{title}: turn {turn} of {repeat}")).items():
        results[name] = results[name].timed(taken)
    for worker in ready.values():
        release(worker)
    return results


def prepare(seat: Seat, scratch: Path) -> Result:
    if seat.worker.environment.missing is not None:
        return Result(cannot=seat.worker.environment.missing)
    folder = seat.row.folder()
    question = {"row": seat.row.name, "folder": str(folder), "scratch": str(scratch)}
    try:
        answer = seat.worker.ask(PREPARE_SECONDS, do="prepare", **question)
    except WorkerError as error:
        return Result(cannot=str(error))
    if "cannot" in answer:
        return Result(cannot=answer["cannot"])
    with np.load(answer["outputs"]) as arrays:
        error_found = Problem.read(folder).error([arrays[name] for name in arrays.files])
    return Result(error=error_found, wrong=not error_found <= seat.row.tolerance, about=answer["about"])


def time_in_turns(workers: Mapping[str, Worker], repeat: int, say: Callable[[int], None]) -> dict[str, list[float]]:
    """Seconds of each run; who fails has none at all. Everyone ran once before, when its result was checked."""
    seconds: dict[str, list[float]] = {name: [] for name in workers}
    failed: set[str] = set()
    for turn in range(1, repeat + 1):
        say(turn)
        for name, worker in workers.items():
            if name in failed or (len(seconds[name]) >= LEAST_RUNS and sum(seconds[name]) > LONG_SECONDS):
                continue
            try:
                seconds[name].append(worker.ask(RUN_SECONDS, do="run")["seconds"])
            except (WorkerError, KeyError):
                failed.add(name)
                seconds[name] = []
    return seconds


def release(worker: Worker) -> None:
    try:
        worker.ask(RUN_SECONDS, do="release")
    except WorkerError:
        worker.stop()


def facts(workers: Mapping[str, Worker]) -> dict[str, Any]:
    """Adapters and versions, as the contenders themselves see them."""
    reports: dict[str, Any] = {}
    for name, worker in workers.items():
        if worker.environment.missing is None:
            try:
                reports[name] = worker.ask(PREPARE_SECONDS, do="about").get("about", {})
            except WorkerError as error:
                reports[name] = {"error": str(error)}
    return reports
