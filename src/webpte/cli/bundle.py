"""Write a program as static files: any web server can host them, and their page runs it on the visitor's GPU."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..bundles import bundle, bundle_checks
from ..bundles.summary import summary
from ..errors import InputError
from ..runtime import load
from ..text import size
from . import interrupts
from .output import print_json
from .parsing import check_folder, check_input, whole
from .terminal import bars, open_page

SHOWN = 8  # methods
PROGRAM_OPTIONS = ("data", "tokenizer", "shapes", "labels", "mean", "std")
SHAPES = """\
a call is named by the dims of its inputs, such as 1x3x224x224, with commas between inputs and - for a number;
encode:1x64,1x64 is a call of the method encode. Without any, a method is planned at its largest and smallest inputs
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = SHAPES
    parser.add_argument("file", nargs="?", help="the .pte program; with --check a folder of ops, or nothing")
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder to write, or to replace")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--name", metavar="TEXT", help="what the page calls it (the file's name)")
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json, if it is not beside the program")
    parser.add_argument(
        "--sequences", type=whole(1), default=4, metavar="N", help="of a language model: answers at once, at most (4)"
    )
    parser.add_argument(
        "--shapes", action="append", default=[], metavar="CALL", help="a call that the page can make; repeatable"
    )
    parser.add_argument("--labels", metavar="FILE", help="of a vision program: a name for each class, a line each")
    parser.add_argument("--mean", type=_numbers, metavar="R,G,B", help="taken from its pixels of 0 to 1 (0,0,0)")
    parser.add_argument("--std", type=_numbers, metavar="R,G,B", help="which they are divided by then (1,1,1)")
    parser.add_argument(
        "--check",
        action="store_true",
        help="a page that tells which ops are right on the visitor's GPU: those of a folder as "
        "ExecuTorch's generator of op tests writes it, or a few of ours",
    )
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")


def run(arguments: argparse.Namespace) -> None:
    check_folder("--output", arguments.output)
    if arguments.check and (named := [name for name in PROGRAM_OPTIONS if getattr(arguments, name)]):
        raise InputError(f"--check takes a folder of ops, and none of --{', --'.join(named)}")
    for option in ("tokenizer", "labels"):
        check_input(f"--{option}", getattr(arguments, option))
    interrupts.go_on_after()  # to remove what was written so far
    path = _written_checks(arguments) if arguments.check else _written(arguments)
    show(summary(path), arguments.json)


def _written_checks(arguments: argparse.Namespace) -> Path:
    with bars() as progress:
        return bundle_checks(arguments.output, arguments.file, name=arguments.name, progress=progress)


def _written(arguments: argparse.Namespace) -> Path:
    if arguments.file is None:
        raise InputError("name the .pte program to bundle, or --check")
    with bars() as progress, load(arguments.file, arguments.data) as program:
        return bundle(
            program,
            arguments.output,
            name=arguments.name,
            tokenizer=arguments.tokenizer,
            shapes=shapes_from(arguments.shapes),
            sequences=arguments.sequences,
            labels=arguments.labels,
            mean=arguments.mean,
            std=arguments.std,
            progress=progress,
        )


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not numbers with commas between them: 0.5,0.5,0.5") from None


def shapes_from(calls: Sequence[str]) -> dict[str, list[list[tuple[int, ...]]]]:
    """By method: the dims of every input."""
    found: dict[str, list[list[tuple[int, ...]]]] = {}
    for call in calls:
        method, colon, dims = call.rpartition(":")
        found.setdefault(method if colon else "forward", []).append([_dims(part, call) for part in dims.split(",")])
    return found


def _dims(part: str, call: str) -> tuple[int, ...]:
    try:
        return () if part == "-" else tuple(int(number) for number in part.split("x"))
    except ValueError:
        raise InputError(
            f"{call!r} is not a call: dims are written as 1x3x224x224, commas part inputs", code="invalid_shape"
        ) from None


def show(report: dict[str, Any], as_json: bool) -> None:
    """What a bundle holds; `inspect` tells the same of one that is there."""
    if as_json:
        print_json(report)
        return
    page = open_page()
    visit = report["visit"]
    page.text(f"{report['folder']}  {report['kind']}, {report['files']} files, {size(report['bytes'])}")
    methods = report["methods"]
    for name in list(methods)[:SHOWN]:
        page.text(f"  {name}: {'; '.join(methods[name])}", indent="    ")
    if len(methods) > SHOWN:
        page.text(f"  and {len(methods) - SHOWN} more methods (--json lists all)")
    for refused in report["refused"]:
        page.text(f"  left out: {refused['op']}/{refused['name']}: {refused['why'].splitlines()[-1]}", indent="    ")
    page.text(
        f"a visitor loads {size(visit['page_gzip'])} of page and player, {size(visit['plan_gzip'])} of plans and texts "
        f"(both gzip), and {size(visit['weights'])} of weights; the second time, next to nothing"
    )
    page.text(f"look at it: python -m http.server -d {report['folder']}, then http://localhost:8000")
