"""Call a method on files, images, shapes or numbers. Print its outputs and the time of cold and warm calls."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from ..debug.run import DIM_SIZES, RunReport, ValueSummary, run_file
from ..text import duration
from .output import print_json
from .parsing import add_call, add_fallback, add_json, add_program, check_output, integer
from .terminal import Column, OutputTable, Page, bars, open_page

DEFAULT_INPUTS = f"""\
An input that is not given is random: floats are normal, integers 0 or 1, a single integer is 0. A dimension that may
vary has at most {DIM_SIZES[0]} elements, or the fewest that the program accepts.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser, bundle=True)
    add_call(parser, DEFAULT_INPUTS)
    parser.add_argument(
        "--repeat", type=integer(0), default=5, metavar="N", help="warm calls to time after the first (5)"
    )
    parser.add_argument("--save", metavar="NPZ", help="write inputs as in0, ... and outputs as out0, ...")
    add_fallback(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> None:
    check_output("--save", arguments.save, (".npz",))
    with bars(ticking=False) as progress:
        report = run_file(
            arguments.file,
            arguments.data,
            arguments.input,
            method=arguments.method,
            repeat=arguments.repeat,
            save=arguments.save,
            seed=arguments.seed,
            fallback=arguments.fallback,
            progress=progress,
        )
    if arguments.json:
        print_json(report)
        return
    page = open_page()
    page.text(f"{report['file']}  {report['method']}", style="bold")
    page.table(_values("input", report["inputs"], [value["source"] for value in report["inputs"]]))
    _reduced_dims(report, page)
    page.table(_values("output", report["outputs"], [_elements(value["head"]) for value in report["outputs"]]))
    _timings(report, page)
    if report["saved"]:
        page.text(f"\ninputs and outputs are in {report['saved']}")


def _values(role: str, values: Sequence[ValueSummary], details: Sequence[str]) -> OutputTable:
    """Return a table of inputs with their sources, or of outputs with their first elements."""
    table = OutputTable(
        (
            Column(role),
            Column("type"),
            Column("min", drop=3, number=True),
            Column("max", drop=3, number=True),
            Column("mean", drop=2, number=True),
            Column("non-finite", drop=1, number=True),
            Column("source" if role == "input" else "first elements", prose=True),
        )
    )
    for position, (value, detail) in enumerate(zip(values, details, strict=True)):
        if value["kind"] != "array":
            table.add(str(position), value["kind"], *[""] * 4, detail or str(value["value"]))
            continue
        ranges = ["" if number is None else f"{number:.4g}" for number in (value["min"], value["max"], value["mean"])]
        bad = Text(str(value["nonfinite"]), style="bold red" if value["nonfinite"] else "")
        table.add(str(position), f"{value['dtype']}{value['shape']}", *ranges, bad, detail)
    return table


def _elements(head: Sequence[Any] | None) -> str:
    return " ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in head or ())


def _reduced_dims(report: RunReport, page: Page) -> None:
    """Say which default inputs are smaller than their bound, and how to choose another shape."""
    reduced = report["reduced_dims"]
    if not reduced:
        return
    dims = ", ".join(f"input {d['input']} dim {d['dim']}: {d['size']} of at most {d['bound']}" for d in reduced)
    page.text(f"\nchosen shapes: {dims}", style="dim")
    first = reduced[0]["input"]
    bound = "x".join(map(str, report["inputs"][first]["bound"] or ()))
    page.text(f"another shape: --input {first}={bound}:random", style="dim")


def _timings(report: RunReport, page: Page) -> None:
    stages = {name: seconds for name, seconds in report["load"].items() if name != "total"}
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in stages.items())
    table = OutputTable((Column("time"), Column("", number=True), Column("", prose=True)))
    table.add("load", duration(report["load"]["total"]), parts)
    table.add("first call", duration(report["first_call"]), "includes what loading could not prepare for these shapes")
    if (warm := report["warm"]) is not None:
        table.add(
            "warm call",
            duration(warm["median"]),
            f"median of {warm['calls']}; min {duration(warm['min'])}, p90 {duration(warm['p90'])}",
        )
    page.table(table)
