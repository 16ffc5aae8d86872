"""One program: exported, run with every input it has goldens for, and compared.

Outcomes are kept beside the exported programs: what the exporter refuses by the program's key, what webpte does with it
by that and by webpte's own text, so that a run after a change exports nothing again.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import webpte
from tests.support.export import exporting

from .index import Program

SOURCE = Path(webpte.__file__).parent
WITHOUT_RUNTIME = (
    *("batch", "builder", "checkpoints", "cli", "debug", "export"),
    *("llm", "measure", "notebook", "serve"),
)  # packages that do not run the programs here
LONGEST = 500  # characters of a message that are kept


class Kind(StrEnum):
    RIGHT = "right"
    WRONG = "wrong"
    EXPORTER = "refused by the exporter"
    REFUSED = "refused by webpte"
    CRASHED = "crashed"


@dataclass(frozen=True)
class Outcome:
    name: str
    kind: Kind
    why: str = ""
    error: float = 0.0  # the largest of any output at any shape, relative to the output's largest value
    shapes: int = 0  # different ones that it ran at
    delegates: int = 0
    kernel_calls: int = 0  # outside delegates
    on_cpu: int = 0  # of those, and of the delegates' calls, the ones the CPU computes
    commit: str = ""  # of webpte, where a repository is


def judge(program: Program) -> Outcome:
    """Exports unless it is in the cache, runs, compares.  Raises only what is meant to end the process."""
    return replace(_judged(program), commit=commit())


def _judged(program: Program) -> Outcome:
    try:
        exported = program.export()
    except Exception as error:
        return Outcome(program.name, Kind.EXPORTER, in_short(error))
    try:
        return run(program, exported)
    except webpte.Error as error:
        return Outcome(program.name, Kind.REFUSED, in_short(error))
    except Exception as error:
        return Outcome(program.name, Kind.CRASHED, in_short(error))


def run(program: Program, exported: exporting.Exported) -> Outcome:
    largest, shapes, tolerance = 0.0, set(), program.tolerance_of(exported)
    with webpte.load(exported.path, data=exported.data) as loaded:
        for step in exported.steps:
            got = loaded.method(step.method).run(step.inputs)
            error, why = difference(got, step.outputs)
            largest = max(largest, error)
            shapes.add((step.method, *(a.shape for a in step.inputs)))
            if why or not error <= tolerance:  # NaN is not a pass
                where = " ".join(map(str, (a.shape for a in step.inputs)))
                return Outcome(program.name, Kind.WRONG, f"{why or f'differs by {error:.1e}'} at {where}", error)
        methods = {step.method for step in exported.steps}
        graphs = [loaded.graph(name) for name in methods]
        on_cpu = sum(sum(loaded.method(name).plan.cpu_calls.values()) for name in methods)
    return Outcome(
        program.name,
        Kind.RIGHT,
        error=largest,
        shapes=len(shapes),
        delegates=sum(len(g.delegates) for g in graphs),
        kernel_calls=sum(call.kernel for g in graphs for call in g.calls),
        on_cpu=on_cpu,
    )


@cache
def commit() -> str:
    """Return the last commit that changed webpte, or "" where git does not know it."""
    command = ("git", "-C", str(SOURCE), "log", "-1", "--format=%h", "--", ".")
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""


def in_short(error: BaseException) -> str:
    """Return its type and message in one line, without what differs from run to run."""
    while error.__cause__ is not None and "An error occurred when running" in str(error):
        error = error.__cause__  # the exporter wraps an error of a pass in one that says which pass
    message = re.sub(r"<([\w.]+) object at 0x\w+>", r"\1", str(error))
    message = " ".join(re.sub(r"(?:/[\w.+-]+){2,}/([\w.+-]+)", r"\1", message).split())
    return f"{type(error).__name__}: {message}"[:LONGEST]


# ---------------------------------------------------------------- comparing


def difference(got: Sequence[Any], want: tuple[np.ndarray, ...]) -> tuple[float, str]:
    """Return the largest relative error of a floating output, and what is wrong beyond that."""
    if len(got) != len(want):
        return 0.0, f"{len(got)} outputs, eager has {len(want)}"
    errors = [0.0]
    for i, (g, w) in enumerate(zip(map(np.asarray, got), want, strict=True)):
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            return 0.0, f"output {i} is {g.dtype}{list(g.shape)}, eager has {w.dtype}{list(w.shape)}"
        if w.dtype.kind != "f":
            if count := np.count_nonzero(g != w):
                return 0.0, f"{count} of {w.size} integers of output {i} differ"
            continue
        g, w = g.astype(np.float64), w.astype(np.float64)
        special = ~(np.isfinite(g) & np.isfinite(w))
        if not np.array_equal(g[special], w[special], equal_nan=True):
            return 0.0, f"NaN or infinity of output {i} differ"
        if not special.all():
            scale = max(float(np.abs(w[~special]).max()), 1e-6)
            errors.append(float(np.abs(g[~special] - w[~special]).max()) / scale)
    return max(errors), ""


# ---------------------------------------------------------------- what is kept


def recall(program: Program) -> Outcome | None:
    """Return what a run with the code as it is now found out."""
    for path in (refusal_file(program), outcome_file(program)):
        if path.exists():
            return outcome_of(json.loads(path.read_text()))
    return None


def remember(program: Program, outcome: Outcome) -> None:
    path = (refusal_file if outcome.kind is Kind.EXPORTER else outcome_file)(program)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, delete=False) as file:
        json.dump(asdict(outcome), file)
    os.replace(file.name, path)


def outcome_of(data: dict[str, Any]) -> Outcome:
    """Return the outcome that `asdict` made data of."""
    return Outcome(**data | {"kind": Kind(data["kind"])})


def refusal_file(program: Program) -> Path:
    return exporting.cache_root().parent / "zoo" / f"{program.key}.json"


def outcome_file(program: Program) -> Path:
    of = f"{program.key} {program.tolerance} {runtime_hash()}"
    return exporting.cache_root().parent / "zoo" / f"{hashlib.sha256(of.encode()).hexdigest()[:32]}.json"


@cache
def runtime_hash() -> str:
    """Of all that decides what webpte does with a program, and of this comparison."""
    packages = [path for path in SOURCE.iterdir() if path.is_dir() and path.name not in WITHOUT_RUNTIME]
    files = sorted(path for package in packages for path in package.rglob("*") if path.suffix in (".py", ".wgsl"))
    return hashlib.sha256(b"".join(p.read_bytes() for p in (Path(__file__), *files))).hexdigest()
