"""List the programs that were built from checkpoints, or remove them.

A program is built when a command names a checkpoint (model.gguf, hf:org/name, smollm2) for the first time. If it was
removed, it is built again.
"""

from __future__ import annotations

import argparse
import time
from typing import Annotated, TypedDict

from ..builder.programs import CachedProgram, clear, list_programs, models_folder, programs_folder
from ..sources import SHORT_NAMES
from ..text import duration, plural, size
from .output import print_json
from .parsing import add_json
from .terminal import Column, OutputTable, open_page


class CacheEntry(TypedDict):
    """A program in the cache."""

    name: Annotated[str, "the folder of the program in the cache"]
    path: str
    source: Annotated[str, "the checkpoint as a command named it"]
    checkpoint: Annotated[str, "the path of the checkpoint"]
    bytes: Annotated[int, "of all files"]
    seconds: Annotated[float, "that building took"]
    built: Annotated[float, "seconds since 1970"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "action", nargs="?", choices=("list", "clear"), default="list", help="list or remove programs (list)"
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs or sources to remove, as listed (all)")
    add_json(parser, "print the programs as JSON")
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace) -> None:
    if arguments.names and arguments.action == "list":
        arguments.refuse("argument NAME: not allowed with list")
    programs = clear(arguments.names) if arguments.action == "clear" else list_programs()
    if arguments.json:
        print_json([_entry(program) for program in programs])
        return
    page, total = open_page(), sum(program.bytes for program in programs)
    if arguments.action == "clear":
        page.text(f"removed {plural(len(programs), 'program')}, {size(total)}")
        return
    page.text(f"{programs_folder()}  {plural(len(programs), 'program')}, {size(total)}")
    if programs:
        page.table(_table(programs))
    page.text(f"\nshort names: {', '.join(SHORT_NAMES)}; checkpoints of your own: {models_folder()}", style="dim")


def _entry(program: CachedProgram) -> CacheEntry:
    return {
        "name": program.name,
        "path": str(program.path),
        "source": program.source,
        "checkpoint": program.checkpoint,
        "bytes": program.bytes,
        "seconds": program.seconds,
        "built": program.built,
    }


def _table(programs: list[CachedProgram]) -> OutputTable:
    table = OutputTable(
        (
            Column("source"),
            Column("bytes", number=True),
            Column("built", drop=2),
            Column("in", drop=3, number=True),
            Column("program", drop=1),
        )
    )
    for program in programs:
        built = time.strftime("%Y-%m-%d %H:%M", time.localtime(program.built))
        table.add(program.source, size(program.bytes), built, duration(program.seconds), program.name)
    return table
