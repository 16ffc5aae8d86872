"""The child: `python -m tests.random_modules.worker` reads requests line by line and answers each.

A request names a seed, or holds a program and the folder to put it in. An answer is an Outcome. Whatever torch and the
exporter print goes to the standard error.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import typing
from dataclasses import asdict
from pathlib import Path

from .exporting import export, folder_of, program_of
from .program import Program


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    gc.set_threshold(100_000, 50, 1000)  # torch's modules are many objects, and none of them is garbage
    for line in sys.stdin:
        request = json.loads(line)
        started = time.perf_counter()
        folder = _exported(request)
        exported = time.perf_counter()
        answers.write(json.dumps({"exported": exported - started}) + "\n")
        from .running import run_folder

        outcome = asdict(run_folder(folder))
        answers.write(json.dumps(outcome | {"seconds": time.perf_counter() - exported}) + "\n")


def _exported(request: dict) -> Path:
    program = program_of(request["seed"]) if "seed" in request else Program.from_json(request["program"])
    folder = Path(request["folder"]) if "folder" in request else folder_of(program)
    if not folder.exists():
        _quicken()
    return export(program, folder)


def _quicken() -> None:
    """Torch writes `Callable[...]` in what an export calls 20,000 times. That of `typing` remembers: a sixth less."""
    import torch

    torch._ops.Callable = typing.Callable


if __name__ == "__main__":
    main()
