"""List the programs our tests use, export them into the cache, show what is in them."""

from __future__ import annotations

import argparse
import shutil
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ..models.named import NAMED
from . import exporting


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support.export.exporting", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs to export and show")
    parser.add_argument("--list", action="store_true", help="print the names and whether each is in the cache")
    parser.add_argument("--all", action="store_true", help="export and show all of them")
    parser.add_argument(
        "--prune", action="store_true", help="delete what is in the cache under no current name; while nobody exports"
    )
    options = parser.parse_args()
    if unknown := [name for name in options.names if name not in NAMED]:
        parser.error(f"no program named {', '.join(unknown)}; see --list")
    if options.list:
        for name, folder in folders().items():
            print(f"{name:24} {folder if folder.exists() else '-'}")
    if options.prune:
        prune()
    names = list(NAMED) if options.all else options.names
    return 1 if [name for name in names if not show(name)] else 0


def folders() -> dict[str, Path]:
    root = exporting.cache_root()
    return {name: root / exporting.cache_key(entry, entry.params) for name, entry in NAMED.items()}


def prune() -> None:
    keep = set(folders().values())
    for folder in exporting.cache_root().iterdir():
        if folder.is_dir() and folder not in keep:
            print("deleted", folder)
            shutil.rmtree(folder)


def show(name: str) -> bool:
    """Export one program and print size, time and contents; False (and the traceback) if that fails."""
    start = time.perf_counter()
    try:
        exported = exporting.export(name)
        lines = list(contents(exported.path))
    except Exception:
        traceback.print_exc()
        print(f"{name}: FAILED", flush=True)
        return False
    seconds = exported.about["seconds"]
    cached = "" if time.perf_counter() - start > seconds else ", cached"
    sizes = " + ".join(str(path.stat().st_size) for path in (exported.path, *exported.data))
    steps = " then ".join(str(len(sequence)) for sequence in exported.sequences)
    print(f"{name}: {sizes} bytes, {seconds:.1f} s{cached}, {steps} steps", *lines, sep="\n", flush=True)
    return True


def contents(path: Path) -> Iterator[str]:
    """Per method its instructions, and the ops of each delegate, counted."""
    try:
        from webpte.container import DelegateCall, KernelCall, MappedFile, parse_program, parse_vulkan
    except ImportError as error:
        yield f"  (contents unknown: {error}; install webpte or set PYTHONPATH=src)"
        return

    def kind(step: object) -> str:
        return step.op if isinstance(step, KernelCall) else type(step).__name__

    with MappedFile(path) as file:
        for method in parse_program(file).methods:
            if not method.instructions:
                continue
            yield f"  {method.name}: {counted(map(kind, method.instructions))}"
            for step in method.instructions:
                if isinstance(step, DelegateCall):
                    graph = parse_vulkan(method.delegates[step.delegate].blob)
                    yield f"    delegate {step.delegate}: {counted(call.name for call in graph.calls)}"


def counted(names: Iterator[str]) -> str:
    return ", ".join(f"{name} {n}" for name, n in Counter(names).most_common())
