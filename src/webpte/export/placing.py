"""An export's files appear together, when all of them are whole, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..text import size
from .report import quality_path


def check_room(path: Path, needed: int) -> None:
    """Whether the disk has room for a program with weights of so many bytes."""
    free = shutil.disk_usage(path.parent).free
    if needed > free:
        raise InputError(
            f"the weights of {path.name} take {size(needed)}, and its disk has {size(free)} left: free some space, "
            "write to another disk, or quantise to fewer bits"
        )


@contextmanager
def placing(path: Path) -> Iterator[Placing]:
    """A folder to write the program to, and what stands beside it. Interrupted or failed, nothing of it is left."""
    folder = _folder(path)
    folder.mkdir()
    try:
        made = Placing(folder / path.name, [])
        yield made
        largest_first = sorted(folder.iterdir(), key=lambda file: (file.name != path.name, -file.stat().st_size))
        if not quality_path(made.program).exists():
            quality_path(path).unlink(missing_ok=True)  # of another program, which is replaced
        for file in reversed(largest_first):  # the program last: where it is, all that it needs is
            os.replace(file, path.parent / file.name)
        made.files.extend(path.parent / file.name for file in largest_first)
    finally:
        discard(path)


def discard(path: Path) -> None:
    """What an export to `path` by this process has written so far; also for a process that is being ended."""
    shutil.rmtree(_folder(path), ignore_errors=True)


def _folder(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@dataclass(frozen=True)
class Placing:
    program: Path  # where to write it
    files: list[Path]  # in the end: all that were written, in their places, the program first, then by size
