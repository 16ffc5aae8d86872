"""Compare the times of this checkout and another: `python -m bench.against ../old model.pte… [--turns 15] [--json]`

Both checkouts run the same programs, taking turns, in a new process each time. A language model is measured by its
load, a prompt of 32 tokens, one token after it, and `LLM.generate` where a tokenizer lies beside the program; any other
program by its load and a call with inputs at their bounds. Shown are the medians of all turns and the median of the
ratios within a turn, so that a disturbance that lasts meets both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from .workers import REPOSITORY, shader_cache

MEASURES = ("load", "call", "prefill", "decode", "generate")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.against", description=__doc__)
    parser.add_argument("checkout", type=Path, help="the other checkout: a folder with src/webpte")
    parser.add_argument("programs", type=Path, nargs="+", help="a language model has a cache: (tokens, position)")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument(
        "--clock", choices=["wall", "cpu"], default="wall", help="cpu: time of all threads, on a busy machine"
    )
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    rows: dict[str, Any] = {}
    for program in options.programs:
        checkouts = {"old": options.checkout.resolve(), "new": REPOSITORY}
        rows |= compare(program.resolve(), checkouts, options.turns, options.clock)
    if options.json:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{'':40} {'old ms':>9} {'new ms':>9} {'new/old':>8}")
    for name, row in rows.items():
        print(f"{name:40} {row['old']:9.2f} {row['new']:9.2f} {row['ratio']:8.3f}")
    return 0


class Child:
    """A checkout with a program loaded; it stops when the questions do."""

    def __init__(self, checkout: Path, program: Path, clock: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("against_child.py")), str(program), clock],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **shader_cache(), "PYTHONPATH": str(checkout / "src")},
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.communicate(timeout=60)

    def ask(self, question: str) -> float | None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(question + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a process ended with {self._process.wait()} when asked for {question}")
        return float(line) if line.strip() else None


def compare(program: Path, checkouts: Mapping[str, Path], turns: int, clock: str) -> dict[str, Any]:
    """Milliseconds by measure, of both checkouts."""
    taken: dict[str, list[dict[str, float]]] = {}
    for turn in range(turns):
        results = {name: measure(checkouts[name], program, clock) for name in turned(checkouts, turn)}
        for name in MEASURES:
            numbers = {checkout: value for checkout, row in results.items() if (value := row[name]) is not None}
            if len(numbers) == len(checkouts):
                taken.setdefault(name, []).append(numbers)
    return {f"{program.stem} {name}": summary(rows) for name, rows in taken.items()}


def measure(checkout: Path, program: Path, clock: str) -> dict[str, float | None]:
    """In a process of its own each time: where its memory lies makes more difference than most changes do."""
    with Child(checkout, program, clock) as child:
        return {name: child.ask(name) for name in MEASURES}


def turned(names: Mapping[str, object], turn: int) -> list[str]:
    """Return the names in an order that alternates with the turn."""
    return list(names)[:: -1 if turn % 2 else 1]


def summary(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {
        "old": statistics.median(row["old"] for row in rows),
        "new": statistics.median(row["new"] for row in rows),
        "ratio": statistics.median(row["new"] / row["old"] for row in rows),
        "turns": len(rows),
    }


if __name__ == "__main__":
    sys.exit(main())
