"""`python -m tests.studies xnnpack.zoo [--mode f16|int8|dynamic] [MODULE[.PROGRAM] ...]`: programs of the zoo for
XNNPACK.

Each is exported with XnnpackPartitioner and run by the executorch wheel and by webpte, at the shapes of its calls.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pkgutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tests.studies.zoo.programs
import webpte
from tests.studies.xnnpack.exporting import export, in_mode
from tests.studies.xnnpack.programs import BOUNDS
from tests.studies.zoo.building import Case
from tests.support.harness.program_runs import NotExportedError, run_programs


def programs(expected: list[str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the programs of the zoo by name."""
    for module in pkgutil.iter_modules(tests.studies.zoo.programs.__path__):
        loaded = importlib.import_module(f"tests.studies.zoo.programs.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            full, returned = f"{module.name}.{name}", inspect.signature(function).return_annotation
            chosen = not expected or module.name in expected or full in expected
            if chosen and function.__module__ == loaded.__name__ and returned in (Case, "Case"):
                yield full, function


def compare(path: Path, case: Case) -> float:
    """Return the largest difference from the wheel over all calls, relative to the largest value of the output."""
    from executorch.extension.pybindings import portable_lib

    wheel = portable_lib._load_for_executorch(str(path))
    worst = 0.0
    with webpte.load(path) as program:
        method = program.method("forward")
        for step in case.steps:
            expected = [torch.as_tensor(out).float().numpy().copy() for out in wheel.forward(step)]
            results = method(*step)
            listed = results if isinstance(results, tuple | list) else (results,)
            for result, out in zip(listed, expected, strict=True):
                with np.errstate(invalid="ignore"):
                    gap = np.abs(np.asarray(result, np.float64) - out)
                gap = gap[np.isfinite(out)]
                worst = max(
                    worst, float(gap.max(initial=0)) / max(float(np.abs(out[np.isfinite(out)]).max(initial=0)), 1e-6)
                )
    return worst


def judge(function: Callable[[], Any], mode: str) -> tuple[str, str]:
    """Export a program in a mode and compare it, and return the kind of the outcome and its details."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder, "program.pte")
        try:
            case = in_mode(function(), mode)
            export(case, mode, path)
        except Exception as error:
            raise NotExportedError from error
        worst = compare(path, case)
        delegates = path.read_bytes().count(b"XH00")
    return "right" if worst < BOUNDS[mode] else "wrong", f"{delegates} delegates, {worst:.2g} relative"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.studies xnnpack.zoo")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--mode", choices=("f32", "f16", "int8", "dynamic"), default="f32")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    run_programs((name, partial(judge, function, args.mode)) for name, function in programs(args.names))


if __name__ == "__main__":
    main()
