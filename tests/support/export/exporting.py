"""Real programs for tests: exported by ExecuTorch once, then kept in a cache outside the repository.

Small ones are also committed (`archive.py`), so that a new machine need not export them.

    exported = export("llama", quantize="4w")        # a name of named.NAMED, parameters override
    exported = export(my_builder, rows=7)            # or a function that returns an export_lowering.Model
    for sequence in exported.sequences:              # each starts from a fresh state
        for step in sequence:                        # step.method, step.inputs, step.outputs (NumPy, eager results)
            ...

With a warm cache nothing here imports torch.  The cache key covers whatever makes the file: the builder and the
definitions that it names (`sources.py`), its parameters, the lowering, and the versions of torch, executorch, torchao
and Python.

Run `python -m tests.support.export.exporting --list | --all | NAME...` to see or fill the cache.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from ..models.named import NAMED
from ..models.programs import Entry
from .archive import restore
from .sources import definitions_hash

SUPPORT = Path(__file__).parents[1]
LOWERING = (SUPPORT / "export" / "lowering.py", "write")  # a change there re-exports everything
PACKAGES = ("torch", "executorch", "torchao")

Builder = Callable[..., Any]  # returns an export_lowering.Model


@dataclass(frozen=True)
class Step:
    """One call of a method and what eager PyTorch returned for it, flattened; an int output is a 0-d int64 array."""

    method: str
    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Exported:
    """A program in the cache."""

    name: str
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / "program.pte"

    @cached_property
    def data(self) -> list[Path]:
        return sorted(self.folder.glob("*.ptd"))

    @cached_property
    def about(self) -> dict[str, Any]:
        return json.loads((self.folder / "about.json").read_text())

    @cached_property
    def sequences(self) -> list[list[Step]]:
        """Runs that each start from a fresh state; within one, state carries over from step to step."""
        slots: dict[tuple[int, int, str], dict[str, np.ndarray]] = {}
        with np.load(self.folder / "goldens.npz") as arrays:
            for key in arrays.files:
                sequence, step, method, slot = key.split(".")
                slots.setdefault((int(sequence), int(step), method), {})[slot] = arrays[key]
        sequences: list[list[Step]] = []
        for (_, at, method), result in sorted(slots.items()):
            step = Step(method, numbered(result, "in"), numbered(result, "out"))
            sequences.append([step]) if at == 0 else sequences[-1].append(step)
        return sequences

    @property
    def steps(self) -> list[Step]:
        """Return all steps in order; enough for a program without state."""
        return [step for sequence in self.sequences for step in sequence]


def numbered(actual: dict[str, np.ndarray], prefix: str) -> tuple[np.ndarray, ...]:
    count = sum(slot.startswith(prefix) for slot in actual)
    return tuple(actual[f"{prefix}{i}"] for i in range(count))


def export(builder: str | Builder, /, **params: Any) -> Exported:
    """Return the program that `builder` describes, from the cache or exported now.

    `params` must be plain data: they are in the key.
    """
    entry = NAMED[builder] if isinstance(builder, str) else entry_of(builder)
    name = builder if isinstance(builder, str) else builder.__name__
    params = entry.params | params

    def write(folder: Path) -> None:
        from .lowering import write

        write(builder if callable(builder) else load(entry), params, folder)

    return kept(cache_root() / cache_key(entry, params), name, params, write)


def kept(folder: Path, name: str, params: dict[str, Any], write: Callable[[Path], None]) -> Exported:
    """Return what is in `folder` of the cache; otherwise restore it from the archive, or make it by `write`."""
    fill(folder, lambda: make(write, name, params, folder))
    return Exported(name, folder)


def fill(folder: Path, make: Callable[[], None]) -> Path:
    """Return the folder after it exists: it did, the archive has it, or `make` writes it."""
    if not folder.exists():
        with one_at_a_time(folder.name):
            if not folder.exists() and not restore(folder):  # another process may have made it in the meantime
                make()
    return folder


# ---------------------------------------------------------------- the key


def cache_root() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "webpte" / "exports"


def cache_key(entry: Entry, params: dict[str, Any]) -> str:
    builder = (entry.path, entry.function.partition(".")[0])
    return key_of(definitions_hash(LOWERING, builder), entry.function, params)


def key_of(sources: str, function: str, params: dict[str, Any]) -> str:
    made_by = {
        "sources": sources,
        "function": function,
        "params": params,
        "versions": versions(),
        "python": sys.version_info[:2],
    }
    return hashlib.sha256(json.dumps(made_by, sort_keys=True).encode()).hexdigest()[:32]


@cache
def versions() -> dict[str, str | None]:
    def of(package: str) -> str | None:
        try:
            return version(package)
        except PackageNotFoundError:
            return None

    return {p: of(p) for p in PACKAGES}


@dataclass(frozen=True)
class LocalEntry(Entry):
    """A builder defined in a test file."""

    @property
    def path(self) -> Path:
        return Path(self.file)


def entry_of(builder: Builder) -> Entry:
    file = inspect.getsourcefile(builder)
    if file is None:
        raise ValueError(f"{builder!r} has no source file, and the cache key is made of it")
    return LocalEntry(file, builder.__qualname__)


def load(entry: Entry) -> Builder:
    return getattr(import_module(f"tests.support.models.{entry.file}"), entry.function)


# ---------------------------------------------------------------- making it


def make(write: Callable[[Path], None], name: str, params: dict[str, Any], folder: Path) -> None:
    """Export into a temporary folder, which becomes `folder` only when all of it is there.

    What is in the folder is decided by `write`, so that this file need not be part of the key.
    """
    if missing := [package for package, result in versions().items() if result is None]:
        raise ModuleNotFoundError(f"exporting {name} needs {', '.join(missing)}: pip install 'webpte[export]'")
    started = time.perf_counter()
    partial = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=folder.parent))
    try:
        with redirect_stdout(sys.stderr):  # ExecuTorch prints: not into what the test prints that happens to come first
            write(partial)
        about = {"name": name, "params": params, "versions": versions(), "seconds": time.perf_counter() - started}
        (partial / "about.json").write_text(json.dumps(about, indent=1))
        try:
            partial.rename(folder)
        except OSError:
            if not folder.exists():  # where there is no lock, another process may have been faster
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Who wants the same thing waits for the one that makes it.  No lock where the system has no flock."""
    locks = cache_root() / ".locks"
    locks.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(locks / name, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    from .cli import main

    sys.exit(main())
