"""List what webpte keeps on this disk, or remove it.

Everything but your own checkpoints may be removed: webpte downloads, builds or measures it again when it is needed.
The history of the chat is lost.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, TypedDict

from ..builder.programs import checkpoint_hashes_path, models_folder, programs_folder
from ..checkpoints.downloads import list_downloads
from ..folders import chat_history_path, kernel_texts_folder
from ..partial_files import removing
from ..runtime.tuning import tuning_cache_path
from ..text import plural, size
from .output import print_json
from .parsing import add_json
from .terminal import Column, OutputTable, open_page

CHECKPOINTS = "checkpoints"  # which webpte only reads


@dataclass(frozen=True)
class StoredFiles:
    """Files of one kind."""

    name: str
    contents: str
    paths: Callable[[], list[Path]]


class StoredFilesReport(TypedDict):
    """Files of one kind that are, or were, on this disk."""

    name: str
    contents: str
    bytes: Annotated[int, "of all files"]
    paths: Annotated[list[str], "files, and folders with all that is in them"]
    removable: Annotated[bool, "whether remove --all removes them"]


KINDS = (
    StoredFiles("downloads", "models from hubs and addresses", lambda: [each.path for each in list_downloads()]),
    StoredFiles("programs", "programs built from checkpoints", lambda: [programs_folder()]),
    StoredFiles("kernels", "texts of kernels", lambda: [kernel_texts_folder()]),
    StoredFiles("tuning", "results of webpte tune", lambda: [tuning_cache_path()]),
    StoredFiles("hashes", "hashes of checkpoint files", lambda: [checkpoint_hashes_path()]),
    StoredFiles("history", "messages typed in webpte chat", lambda: [chat_history_path()]),
    StoredFiles(CHECKPOINTS, "checkpoints that you copied there", lambda: [models_folder()]),
)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", nargs="?", choices=("list", "remove"), default="list", help="what to do (list)")
    names = [kind.name for kind in KINDS if kind.name != CHECKPOINTS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"kinds of files to remove: {', '.join(names)}")
    parser.add_argument("--all", action="store_true", help="with remove: everything but your own checkpoints")
    add_json(parser, "print the files as JSON")
    parser.set_defaults(refuse=parser.error, removable=names)


def run(arguments: argparse.Namespace) -> None:
    removing_some = arguments.action == "remove"
    if not removing_some and (arguments.names or arguments.all):
        arguments.refuse("argument NAME and --all: not allowed with list")
    if removing_some and bool(arguments.names) == arguments.all:
        arguments.refuse("argument NAME: name the files to remove, or add --all")
    if unknown := [name for name in arguments.names if name not in arguments.removable]:
        arguments.refuse(f"argument NAME: expected one of {', '.join(arguments.removable)}, got {unknown[0]!r}")
    selected = arguments.removable if arguments.all else arguments.names
    kinds = [kind for kind in KINDS if kind.name in selected or not removing_some]
    reports = [report for report in map(_report, kinds) if report["paths"]]
    if removing_some:
        for report in reports:
            _remove(report["paths"])
    if arguments.json:
        print_json(reports)
        return
    page = open_page()
    total = f"{plural(len(reports), 'kind')} of files, {size(sum(report['bytes'] for report in reports))}"
    page.text(f"removed {total}" if removing_some else total)
    if reports:
        page.table(_table(reports))
    if not removing_some:
        page.text("\nwebpte models lists single models; drivers have caches of their own", style="dim")


def _report(kind: StoredFiles) -> StoredFilesReport:
    paths = [path for path in kind.paths() if path.exists()]
    return {
        "name": kind.name,
        "contents": kind.contents,
        "bytes": sum(map(_bytes, paths)),
        "paths": [str(path) for path in paths],
        "removable": kind.name != CHECKPOINTS,
    }


def _bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder. Links to them are not counted."""
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files if file.is_file() and not file.is_symlink())


def _remove(paths: list[str]) -> None:
    for path in map(Path, paths):
        with removing(path):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _table(reports: list[StoredFilesReport]) -> OutputTable:
    columns = (Column("name"), Column("bytes", number=True), Column("contents", drop=1, prose=True), Column("path"))
    table = OutputTable(columns)
    for report in reports:
        first, *others = report["paths"]
        place = f"{first} and {plural(len(others), 'other')}" if others else first
        table.add(report["name"], size(report["bytes"]), report["contents"], place)
    return table
