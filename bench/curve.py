"""Measure the cost of each further row of a pass: `python -m bench.curve model.pte… [--rows 32] [--context 100]`

A language model computes 1, 2, 3, … tokens after `--context` others. The numbers of rows take turns, and the fastest
turn of each counts. `--cpu` counts CPU seconds of the process instead of wall time: on a software device they are the
work itself, whatever else runs on the machine. `--write` stores the result for docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STORED = Path(__file__).with_name("curve.json")

Call = Callable[[], object]


@dataclass
class Curve:
    """Seconds by number of rows, of models by the stem of their file."""

    context: int
    clock: str
    adapter: str
    models: dict[str, dict[int, float]] = field(default_factory=dict)

    def write(self, path: Path = STORED) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def steps(seconds: Mapping[int, float]) -> dict[int, float]:
    """Return the cost of each number of rows relative to the previous number."""
    counts = sorted(seconds)
    return {rows: seconds[rows] / seconds[fewer] for fewer, rows in itertools.pairwise(counts)}


def gains(seconds: Mapping[int, float]) -> dict[int, float]:
    """Return the rows per second of each pass, relative to passes of one row."""
    return {rows: rows * seconds[1] / taken for rows, taken in seconds.items()}


def interleaved(calls: Mapping[Any, Call], turns: int, clock: Callable[[], float]) -> dict[Any, float]:
    """Return the fastest turn of each call, after one turn that is not timed: disturbances only add time."""
    taken: dict[Any, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            started = clock()
            call()
            if turn:
                taken[name].append(clock() - started)
    return {name: min(seconds) for name, seconds in taken.items()}


def model_calls(path: Path, counts: Sequence[int], context: int) -> dict[int, Call]:
    """Return passes of each number of rows after `context` tokens."""
    import webpte
    from webpte.llm.metadata import metadata

    program = webpte.load(path, tune="off")
    method = program.method("forward")
    bound = method.inputs[0].bound
    assert bound is not None
    room = int(metadata(program, "get_max_context_len", context + max(counts)))

    def call(rows: int) -> Call:
        tokens = np.arange(5, 5 + rows, dtype=np.int64)[None]  # (1, T)
        position = np.array([min(context, room - max(counts))], np.int64)
        return lambda: method.run((tokens, position))

    return {rows: call(rows) for rows in counts if rows <= bound[1]}


def measure(paths: Sequence[Path], counts: Sequence[int], context: int, turns: int, cpu: bool) -> Curve:
    from webpte.device import adapter_caps

    calls: dict[tuple[str, int], Call] = {}
    for path in paths:
        calls |= {(path.stem, rows): call for rows, call in model_calls(path, counts, context).items()}
    seconds_of = interleaved(calls, turns, time.process_time if cpu else time.perf_counter)
    adapter = adapter_caps().adapter
    curve = Curve(context, "CPU seconds" if cpu else "seconds", adapter)
    for (name, rows), seconds in seconds_of.items():
        curve.models.setdefault(name, {})[rows] = seconds
    return curve


def table(name: str, seconds: Mapping[int, float]) -> str:
    step, gain = steps(seconds), gains(seconds)
    lines = [f"{name:>12} {'ms':>8} {'step':>6} {'× one':>6}"]
    for rows, taken in seconds.items():
        lines.append(f"{rows:12} {1e3 * taken:8.2f} {step.get(rows, 1):6.2f} {gain[rows]:6.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.curve", description=__doc__)
    parser.add_argument("programs", type=Path, nargs="+", help="language models with a cache: (tokens, position)")
    parser.add_argument("--rows", type=int, default=32, help="largest number of rows of a pass")
    parser.add_argument("--context", type=int, default=100)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--cpu", action="store_true", help="count the process's CPU seconds")
    parser.add_argument("--write", action="store_true", help="store the result for docs/benchmarks.md")
    options = parser.parse_args(arguments)
    curve = measure(options.programs, range(1, options.rows + 1), options.context, options.turns, options.cpu)
    for name, seconds in curve.models.items():
        print(table(name, seconds))
    if options.write:
        curve.write()
    return 0


if __name__ == "__main__":
    sys.exit(main())
