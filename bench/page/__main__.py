"""The page of a bundle, onnxruntime-web in the same browser, and webpte itself: on one driver, in turns.

python -m bench.setup "ONNX Runtime" onnxruntime-web
python -m bench.page [--rows NAME,…] [--contenders NAME,…] [--turns 5] [--smollm2 MODEL.pte] [--json out.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from playwright.sync_api import sync_playwright

from ..problems import Problem
from ..rows import ROWS, Row
from ..workers import ENVIRONMENTS
from .contenders import Answer, Contender, native, page
from .names import AS_GPU, NATIVE, ORT, PAGE, UNCHECKED, ratio
from .scripts import write_site

CHOSEN = (
    "llama256_prefill", "llama256_decode", "minilm_1x32", "smollm2_prefill_32", "smollm2_prefill_128",
    "smollm2_decode_100",
)  # fmt: skip
CONTENDERS = (ORT, PAGE, AS_GPU, UNCHECKED, NATIVE)
TOKENS = {"llama256_decode": 8, "smollm2_decode_100": 3}  # greedy ones after the first


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--rows", type=listed, default=CHOSEN, help=f"some of {', '.join(CHOSEN)}")
    parser.add_argument("--contenders", type=listed, default=CONTENDERS, help=f"some of {', '.join(CONTENDERS)}")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--smollm2", type=Path, help="an export of SmolLM2 in 4 bits, instead of the cache's")
    parser.add_argument("--json", type=Path, help="where results go; rows of an existing file are kept or replaced")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {}
    if options.json is not None and options.json.exists():
        results = json.loads(options.json.read_text())
    for name in options.rows:
        results[name] = measure(ROWS[name], options.contenders, options.turns, options.smollm2)
        print_row(ROWS[name], results[name])
        if options.json is not None:
            options.json.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def listed(text: str) -> list[str]:
    return text.split(",")


def measure(row: Row, names: Sequence[str], turns: int, smollm2: Path | None) -> dict[str, Any]:
    """Everyone opens the row and is checked; then everyone runs it in turns."""
    problem = row.problem()
    with ExitStack() as stack:
        seats = seated(row, problem, names, smollm2, stack)
        count = TOKENS.get(row.name, 0)
        answers = {name: seat.run(count, True) for name, seat in seats.items()}
        timed: dict[str, list[Answer]] = {name: [] for name in seats}
        for turn in range(turns):
            for name in in_turn(names, turn):
                timed[name].append(seats[name].run(count, False))
    return {name: summary(row, problem, answers[name], timed[name]) for name in names}


def in_turn(names: Sequence[str], turn: int) -> list[str]:
    """No one always goes first."""
    first = turn % len(names)
    return [*names[first:], *names[:first]]


def seated(
    row: Row, problem: Problem, names: Sequence[str], smollm2: Path | None, stack: ExitStack
) -> dict[str, Contender]:
    scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-page-")))
    playwright = stack.enter_context(sync_playwright())
    seats: dict[str, Contender] = {}
    if ORT in names:
        (scratch / "onnx").mkdir()
        python = ENVIRONMENTS["ONNX Runtime"].python
        where = str(row.folder()), str(scratch / "onnx")
        subprocess.run([str(python), "-m", "bench.page.onnx_models", *where], check=True)
        seats[ORT] = stack.enter_context(page(playwright, ORT, scratch / "onnx", None))
    script = write_site(row.name, problem, scratch / "site", smollm2)
    for name in names:
        if name == NATIVE:
            seats[name] = stack.enter_context(native(scratch / "site", script))
        elif name != ORT:
            seats[name] = stack.enter_context(page(playwright, name, scratch / "site", script))
    return seats


def summary(row: Row, problem: Problem, checked: Answer, timed: Sequence[Answer]) -> dict[str, Any]:
    error = problem.error([np.array(checked.output, np.float32)])
    return {
        "milliseconds": statistics.median(time for answer in timed for time in answer.times),
        "cpu": statistics.median(answer.cpu for answer in timed),
        "turns": [statistics.median(answer.times) for answer in timed],
        "error": error,
        "right": error <= row.tolerance,
        "tokens": checked.tokens if len(checked.tokens) > 1 else [],
    }


def print_row(row: Row, result: Mapping[str, Any]) -> None:
    print(f"{row.title}")
    tokens = {tuple(each["tokens"]) for each in result.values()}
    for name, each in result.items():
        right = "right" if each["right"] else "WRONG"
        times = f"{each['milliseconds']:10.1f} ms  {each['cpu']:10.1f} ms of CPU"
        print(f"  {name:28} {times}  {right} ({each['error']:.1e})")
    for name, other in ((PAGE, ORT), (AS_GPU, ORT), (PAGE, NATIVE), (PAGE, UNCHECKED)):
        if name in result and other in result:
            cpu = result[name]["cpu"] / result[other]["cpu"]
            print(f"  {name} / {other}: {ratio(result, name, other):.3f}, of CPU {cpu:.3f}")
    if len(tokens) > 1:
        print(f"  tokens differ: {tokens}")


if __name__ == "__main__":
    raise SystemExit(main())
