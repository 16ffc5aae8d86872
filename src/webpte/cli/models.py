"""List the models on this machine with their sizes, and the short names of others; or remove models.

There are two kinds: downloads (hf:org/name, https: addresses), and the programs that were built from checkpoints when a
command named them for the first time. A model that was removed is downloaded or built again when it is used.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Annotated, Literal, TypedDict

from ..builder.programs import CachedProgram, list_programs, models_folder, remove_partial_builds, remove_programs
from ..checkpoints.downloads import Download, list_downloads
from ..errors import InputError
from ..sources import SHORT_NAMES
from ..text import close_matches, plural, size
from .output import print_json
from .parsing import add_json
from .terminal import Column, OutputTable, open_page


class CachedModel(TypedDict):
    """A model on this machine."""

    kind: Literal["download", "built"]
    source: Annotated[str, "as commands name it: hf:org/name, an address, or the checkpoint of a built program"]
    name: Annotated[str, "another name to remove it by: the folder of a built program; else the source"]
    path: Annotated[str, "the folder of a download, or the built program"]
    bytes: Annotated[int, "of all files"]
    models: Annotated[list[str], "programs and weights of a download that are complete"]
    time: Annotated[float, "of the download or the build, in seconds since 1970"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "remove"), default="list", help="what to do (list)")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to remove, as listed")
    parser.add_argument("--all", action="store_true", help="with remove: every download and every built program")
    add_json(parser, "print the models as JSON")
    parser.set_defaults(refuse=parser.error)


def run(arguments: argparse.Namespace) -> None:
    removing = arguments.action == "remove"
    if not removing and (arguments.names or arguments.all):
        arguments.refuse("argument NAME and --all: not allowed with list")
    if removing and bool(arguments.names) == arguments.all:
        arguments.refuse("argument NAME: name the models to remove, or add --all")
    downloads, programs = list_downloads(), list_programs()
    if removing:
        downloads, programs = _remove(arguments.names, downloads, programs)
    models = [*map(_download, downloads), *map(_built, programs)]
    if arguments.json:
        print_json(models)
        return
    page = open_page()
    total = f"{plural(len(models), 'model')}, {size(sum(model['bytes'] for model in models))}"
    page.text(f"removed {total}" if removing else total)
    if models:
        page.table(_table(models))
    if not removing:
        page.text(f"\nshort names: {', '.join(SHORT_NAMES)}; checkpoints of your own: {models_folder()}", style="dim")
        page.text("webpte files lists everything that webpte keeps on this disk", style="dim")


def _remove(
    names: Sequence[str], downloads: list[Download], programs: list[CachedProgram]
) -> tuple[list[Download], list[CachedProgram]]:
    """Remove models by name, or all if there are no names. Return those that were removed."""
    known = {download.source for download in downloads}
    known |= {name for program in programs for name in (program.source, program.name)}
    if unknown := set(names) - known:
        name = sorted(unknown)[0]
        raise InputError(
            argument="name",
            expected="a model on this machine",
            got=repr(name),
            code="unknown_model",
            hint=f"This machine has {', '.join(close_matches(name, known, 3, 0)) or 'none'}.",
        )
    if names:
        downloads = [download for download in downloads if download.source in names]
        programs = [program for program in programs if {program.source, program.name} & set(names)]
    for download in downloads:
        download.remove()
    remove_programs(programs)
    if not names:
        remove_partial_builds()
    return downloads, programs


def _download(download: Download) -> CachedModel:
    return {
        "kind": "download",
        "source": download.source,
        "name": download.source,
        "path": str(download.path),
        "bytes": download.bytes,
        "models": list(download.models),
        "time": download.downloaded,
    }


def _built(program: CachedProgram) -> CachedModel:
    return {
        "kind": "built",
        "source": program.source,
        "name": program.name,
        "path": str(program.path),
        "bytes": program.bytes,
        "models": [],
        "time": program.built,
    }


def _table(models: list[CachedModel]) -> OutputTable:
    columns = (Column("source"), Column("bytes", number=True), Column("kind"), Column("time", drop=2))
    table = OutputTable((*columns, Column("program", drop=1)))
    for model in models:
        moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(model["time"]))
        program = model["name"] if model["kind"] == "built" else ", ".join(model["models"]) or "incomplete"
        table.add(model["source"], size(model["bytes"]), model["kind"], moment, program)
    return table
