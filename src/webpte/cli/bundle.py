"""Write a program as static files for any web server. Their page runs it on the GPU of the visitor."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..bundles import bundle, bundle_bench, bundle_checks
from ..bundles.site import BundleSummary, summary
from ..errors import InputError
from ..llm.defaults import describe_defaults
from ..runtime import load_program
from ..text import plural, size
from . import interrupts
from .generation_options import add_tokenizer
from .output import print_json
from .parsing import add_data, add_json, add_max_context, check_folder, check_input, integer
from .programs import open_source
from .terminal import bars, open_page

MAX_METHODS = 8  # listed
PROGRAM_OPTIONS = ("data", "max_context", "tokenizer", "shapes", "labels", "mean", "std", "matrix_units")
SHAPES = """\
CALL is the shapes of its inputs, such as 1x3x224x224, with commas between inputs and - for a number.
encode:1x64,1x64 is a call of the method encode. Without --shapes, each method is planned for its largest and its
smallest inputs.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = SHAPES
    parser.add_argument(
        "file", nargs="?", help="a .pte program or a checkpoint; with --check, a folder of ops or nothing"
    )
    parser.add_argument("-o", "--output", required=True, metavar="DIR", help="the folder to write or replace")
    add_data(parser)
    add_max_context(parser)
    parser.add_argument("--name", metavar="TEXT", help="title of the page (the file's name)")
    add_tokenizer(parser)
    parser.add_argument(
        "--sequences", type=integer(1), default=4, metavar="N", help="concurrent sequences of a language model (4)"
    )
    parser.add_argument(
        "--shapes", action="append", default=[], metavar="CALL", help="a call that the page can make; repeatable"
    )
    parser.add_argument("--labels", metavar="FILE", help="class names of a vision program, one per line")
    parser.add_argument("--mean", type=_numbers, metavar="R,G,B", help="subtracted from pixels of 0 to 1 (0,0,0)")
    parser.add_argument("--std", type=_numbers, metavar="R,G,B", help="divides the result (1,1,1)")
    parser.add_argument(
        "--matrix-units",
        action="store_true",
        help="also plan for matrix units of GPUs, an experimental feature of Chrome and Node",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write a page that tests ops on the visitor's GPU: a built-in set, or a folder "
        "written by ExecuTorch's op test generator",
    )
    parser.add_argument(
        "--bench",
        action="store_true",
        help="write a page that measures the visitor's GPU as bench --report does; 100 MB",
    )
    add_json(parser, "print the summary as JSON")


def run(arguments: argparse.Namespace) -> None:
    check_folder("--output", arguments.output)
    for page, excluded in (("check", PROGRAM_OPTIONS), ("bench", (*PROGRAM_OPTIONS, "check"))):
        if getattr(arguments, page) and (named := [name for name in excluded if getattr(arguments, name)]):
            options = ", ".join(f"--{name.replace('_', '-')}" for name in named)
            raise InputError(f"not allowed with {options}", argument=f"--{page}", code="not_applicable")
    if arguments.bench and arguments.file is not None:
        raise InputError(argument="file", expected="none with --bench", got=arguments.file, code="not_applicable")
    for option in ("tokenizer", "labels"):
        check_input(f"--{option}", getattr(arguments, option))
    interrupts.go_on_after()  # to remove the files written so far
    write = _write_bench if arguments.bench else _write_checks if arguments.check else _write_program
    path = write(arguments)
    show(summary(path), arguments.json)


def _write_checks(arguments: argparse.Namespace) -> Path:
    with bars() as progress:
        return bundle_checks(arguments.output, arguments.file, name=arguments.name, progress=progress)


def _write_bench(arguments: argparse.Namespace) -> Path:
    with bars() as progress:
        return bundle_bench(arguments.output, name=arguments.name, progress=progress)


def _write_program(arguments: argparse.Namespace) -> Path:
    if arguments.file is None:
        raise InputError(argument="file", expected="a .pte program, --check or --bench", got="none", code="no_program")
    with (
        bars() as progress,
        load_program(open_source(arguments.file, progress, arguments.max_context), arguments.data) as program,
    ):
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
            matrix_units=arguments.matrix_units,
            progress=progress,
        )


def _numbers(text: str) -> list[float]:
    try:
        return [float(number) for number in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected numbers with commas, such as 0.5,0.5,0.5, got {text!r}") from None


def shapes_from(calls: Sequence[str]) -> dict[str, list[list[tuple[int, ...]]]]:
    """Return the shapes of every input, by method."""
    shapes: dict[str, list[list[tuple[int, ...]]]] = {}
    for call in calls:
        method, colon, dims = call.rpartition(":")
        shapes.setdefault(method if colon else "forward", []).append([_dims(part, call) for part in dims.split(",")])
    return shapes


def _dims(part: str, call: str) -> tuple[int, ...]:
    try:
        return () if part == "-" else tuple(int(number) for number in part.split("x"))
    except ValueError:
        raise InputError(
            argument="--shapes",
            expected="shapes such as 1x3x224x224, with commas between inputs",
            got=repr(call),
            code="invalid_shape",
        ) from None


def show(report: BundleSummary, as_json: bool) -> None:
    """Print the summary of a bundle, as `bundle` and `inspect` do."""
    if as_json:
        print_json(report)
        return
    page = open_page()
    visit = report["visit"]
    page.text(f"{report['folder']}  {report['kind']}, {plural(report['files'], 'file')}, {size(report['bytes'])}")
    if report["sampling_defaults"]:
        page.text(f"sampling defaults: {describe_defaults(report['sampling_defaults'])}")
    methods = report["methods"]
    for name in list(methods)[:MAX_METHODS]:
        page.text(f"  {name}: {'; '.join(methods[name])}", indent="    ")
    if len(methods) > MAX_METHODS:
        page.text(f"  and {len(methods) - MAX_METHODS} more (--json lists all)")
    for omitted in report["omitted"]:
        page.text(
            f"  not included: {omitted['op']}/{omitted['name']}: {omitted['reason'].splitlines()[-1]}", indent="    "
        )
    page.text(
        f"a visitor loads {size(visit['page_gzip'])} of page and player, {size(visit['plan_gzip'])} of plans and texts "
        f"(both gzip), and {size(visit['weights'])} of weights; later visits use the browser's cache"
    )
    page.text(f"to open it: python -m http.server -d {report['folder']}, then http://localhost:8000")
