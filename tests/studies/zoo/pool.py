"""Programs judged in child processes, so that one that takes its process with it is an outcome like another."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import cache

from tests.support.harness.workers import Worker, compute_all, serve

from .index import Program, networks, programs
from .outcome import Kind, Outcome, judge, outcome_of

TIMEOUT = 1200.0  # seconds for one program: exporting some of them takes minutes on a loaded machine
COMMAND = ("-m", "tests.studies.zoo.pool")
Report = Callable[[Program, Outcome, float], None]


def judge_all(chosen: Sequence[Program], jobs: int, report: Report) -> None:
    compute_all(chosen, jobs, lambda: Worker(*COMMAND, timeout=TIMEOUT), judge_apart, report)


def judge_apart(worker: Worker, one: Program) -> Outcome:
    """Return the outcome of a program that runs in a worker."""
    worker.send(one.name)
    data = worker.receive()
    if data is None:
        return Outcome(one.name, Kind.CRASHED, worker.reason())
    return outcome_of(data)


@cache
def known() -> dict[str, Program]:
    return programs() | networks()


def answers(name: str) -> Iterator[dict[str, object]]:
    gc.collect()
    gc.disable()  # until the next program: exporters make millions of objects
    yield asdict(judge(known()[name]))


if __name__ == "__main__":
    serve(answers)
