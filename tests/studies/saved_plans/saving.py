"""The ordinary path: a method is called, its results are kept, and its plan is saved."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import webpte

from .jobs import Call, Job, smaller


@dataclass(frozen=True)
class Outcome:
    name: str
    kind: str  # "right", "wrong" or "refused", by the ordinary path, by name
    why: str = ""
    shapes: int = 0  # different ones that it ran at
    fixed: bool = False  # it has but one


def save(job: Job, folder: Path) -> Outcome | None:
    """Run and save a job for the child to run again: None, or why there is nothing to run."""
    try:
        program = webpte.load(job.path, job.data)
    except webpte.Error as error:
        return Outcome(job.name, "refused", str(error))
    with program:
        try:
            method = program.method(job.method)
            sequences = _sequences(job, method)
            results = _run(method, sequences)
        except webpte.Error as error:
            return Outcome(job.name, "refused", str(error))
        method.save(folder / "plan")
        fixed = not any(any(info.dynamic or ()) for info in method.inputs)
    _write_job(job, folder, sequences, results, fixed)
    return None


def _sequences(job: Job, method: webpte.Method) -> list[list[Call]]:
    sequences = [list(sequence) for sequence in job.sequences]
    further = smaller([call for sequence in sequences for call in sequence], method.inputs)
    if further is not None and _runs(method, further):
        sequences.append([further])
    return sequences


def _write_job(job: Job, folder: Path, sequences: list[list[Call]], results: list[list[Any]], fixed: bool) -> None:
    """For the child: every call and its results."""
    arrays = {
        f"{s}.{c}.{kind}{i}": np.asarray(array)
        for s, (calls, outputs) in enumerate(zip(sequences, results, strict=True))
        for c, (call, output) in enumerate(zip(calls, outputs, strict=True))
        for kind, result in (("in", call), ("out", output))
        for i, array in enumerate(result)
    }
    np.savez(folder / "calls.npz", **arrays)  # type: ignore[arg-type]
    about: dict[str, Any] = {"name": job.name, "data": [str(job.path), *map(str, job.data)], "fixed": fixed}
    pairs = zip(sequences, results, strict=True)
    about["calls"] = [[(len(c), len(o)) for c, o in zip(*pair, strict=True)] for pair in pairs]  # how many of each
    (folder / "job.json").write_text(json.dumps(about))


def _runs(method: webpte.Method, call: Call) -> bool:
    """Whether a method takes a shape that no one has promised: the program may ask for more than its bounds say."""
    try:
        method.run(call)
    except webpte.Error:
        return False
    return True


def _run(method: webpte.Method, sequences: list[list[Call]]) -> list[list[tuple[Any, ...]]]:
    results = []
    for sequence in sequences:
        method.reset()
        results.append([method.run(call) for call in sequence])
    return results
