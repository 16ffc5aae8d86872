"""What each further row of a pass costs: `python -m bench.curve model.pte… [--rows 32] [--context 100] [--cpu]`

A language model reads 1, 2, 3, … tokens behind as many others as `--context` says, or as it has room for; all counts
take turns. Shown is the fastest of each: milliseconds, the step from one row fewer, and how many times the tokens of
single rows they are in the same time. A 4-bit layer alone takes turns with them, for the cost model of `bench.scale`.
`--cpu` counts the seconds of the process's threads: on a software device they are the work itself, whatever else the
machine does. `--write` keeps the result in bench/curve.json and writes docs/scale.md again.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

STORED = Path(__file__).with_name("curve.json")
KERNEL = 2048  # rows and columns of the layer that is run alone
TILE = 12  # rows that its kernel takes at once when there are many

Call = Callable[[], object]


@dataclass
class Curve:
    """Seconds by number of rows: of the layer alone, and of models by the stem of their file."""

    context: int
    clock: str
    adapter: str
    kernel: dict[int, float]
    models: dict[str, dict[int, float]] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path = STORED) -> Curve:
        stored = json.loads(path.read_text(encoding="utf-8"))
        models = {name: _by_rows(rows) for name, rows in stored["models"].items()}
        return cls(stored["context"], stored["clock"], stored["adapter"], _by_rows(stored["kernel"]), models)

    def write(self, path: Path = STORED) -> None:
        path.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")


def _by_rows(stored: Mapping[str, float]) -> dict[int, float]:
    return {int(rows): seconds for rows, seconds in stored.items()}


def steps(seconds: Mapping[int, float]) -> dict[int, float]:
    """What each number of rows costs, relative to the one before it in the list."""
    counts = sorted(seconds)
    return {rows: seconds[rows] / seconds[fewer] for fewer, rows in itertools.pairwise(counts)}


def gains(seconds: Mapping[int, float]) -> dict[int, float]:
    """How many times the rows of single passes a pass makes in the same time."""
    return {rows: rows * seconds[1] / taken for rows, taken in seconds.items()}


def interleaved(calls: Mapping[Any, Call], turns: int, clock: Callable[[], float]) -> dict[Any, float]:
    """The fastest of turns in which every call has its own, after one that nobody times: disturbances only add."""
    taken: dict[Any, list[float]] = {name: [] for name in calls}
    for turn in range(turns + 1):
        for name, call in calls.items():
            started = clock()
            call()
            if turn:
                taken[name].append(clock() - started)
    return {name: min(seconds) for name, seconds in taken.items()}


def model_calls(path: Path, counts: Sequence[int], context: int) -> dict[int, Call]:
    """Passes of so many rows behind `context` tokens, through the method that every caller uses."""
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


def kernel_calls(counts: Sequence[int]) -> dict[int, Call]:
    import webpte
    from tests.support.harness.cases import OneOp, T, case

    codes = T(KERNEL, KERNEL // 2, dtype="u8", low=0, high=255, constant=True)
    scales = T(KERNEL // 32, KERNEL, low=0.005, high=0.05, constant=True)
    op = "et_vk.linear_q4gsw.default"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "layer.pte"
        OneOp(case(op, T("n", KERNEL), codes, scales, 32, None, n=(max(counts), 1))).write(path)
        method = webpte.load(path, tune="off").method("forward")

    def call(rows: int) -> Call:
        x = np.ones((rows, KERNEL), np.float32)
        return lambda: method.run((x,))

    return {rows: call(rows) for rows in counts}


def measured(paths: Sequence[Path], counts: Sequence[int], context: int, turns: int, cpu: bool) -> Curve:
    from webpte.device import adapter_caps

    calls: dict[Any, Call] = {("", rows): call for rows, call in kernel_calls((1, TILE)).items()}
    for path in paths:
        calls |= {(path.stem, rows): call for rows, call in model_calls(path, counts, context).items()}
    found = interleaved(calls, turns, time.process_time if cpu else time.perf_counter)
    adapter = adapter_caps().adapter
    curve = Curve(context, "CPU seconds" if cpu else "seconds", adapter, {})
    for (name, rows), seconds in found.items():
        (curve.models.setdefault(name, {}) if name else curve.kernel)[rows] = seconds
    return curve


def shown(name: str, seconds: Mapping[int, float]) -> str:
    step, gain = steps(seconds), gains(seconds)
    lines = [f"{name:>12} {'ms':>8} {'step':>6} {'× one':>6}"]
    for rows, taken in seconds.items():
        lines.append(f"{rows:12} {1e3 * taken:8.2f} {step.get(rows, 1):6.2f} {gain[rows]:6.2f}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.curve", description=__doc__)
    parser.add_argument("programs", type=Path, nargs="+", help="language models with a cache: (tokens, position)")
    parser.add_argument("--rows", type=int, default=32, help="the most of a pass")
    parser.add_argument("--context", type=int, default=100)
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--cpu", action="store_true", help="count the process's CPU seconds")
    parser.add_argument("--write", action="store_true", help="keep the result, and write docs/scale.md again")
    options = parser.parse_args(arguments)
    curve = measured(options.programs, range(1, options.rows + 1), options.context, options.turns, options.cpu)
    for name, seconds in curve.models.items():
        print(shown(name, seconds))
    if options.write:
        from . import scale

        curve.write()
        scale.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
