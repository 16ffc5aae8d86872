"""The child: `python -m tests.studies random_modules.worker` reads requests line by line and answers each.

A request names a seed, or holds a program and the folder to put it in. An answer is an Outcome.
"""

from __future__ import annotations

import gc
import time
import typing
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.support.harness.workers import serve

from .exporting import export, folder_of, program_of
from .program import Program


def answers(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    started = time.perf_counter()
    folder = _exported(request)
    exported = time.perf_counter()
    yield {"exported": exported - started}
    from .running import run_folder

    yield asdict(run_folder(folder)) | {"seconds": time.perf_counter() - exported}


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
    gc.set_threshold(100_000, 50, 1000)  # torch's modules are many objects, and none of them is garbage
    serve(answers)
