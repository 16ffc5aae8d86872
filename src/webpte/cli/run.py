"""Run a method on files, images, shapes or numbers; print what came out and how long it took, cold and warm."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ..text import duration
from ..tools.run import run_file
from .output import print_json
from .parsing import check_output, whole
from .terminal import Column, OutputTable, Page, bars, open_page

INPUTS = """\
inputs are given in order, by position as 0=VALUE, or by the name that inspect shows; VALUE is one of
  x.npy, all.npz, all.npz:KEY   arrays; a whole .npz gives several inputs, by keys that end in a number or in order
  photo.png                     resized to the input's bound, RGB, 0 to 1; photo.png:-1..1 and photo.png:imagenet
                                scale it otherwise
  1x16:random                   a shape, or none for the bound, and random, zeros, ones, arange, a number, or 0..99
                                for random numbers of that range
  3                             a number
inputs that are not given are random at their bound (integers 0 or 1, a single integer 0), from a fixed seed
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = INPUTS
    parser.add_argument("file", help="the .pte program, or the folder of a bundle")
    parser.add_argument("--method", default="forward", metavar="NAME", help="the method to run (forward)")
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]VALUE", help="an input, see below")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument(
        "--repeat", type=whole(0), default=5, metavar="N", help="warm calls to time after the first (5)"
    )
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of random inputs (0)")
    parser.add_argument("--save", metavar="NPZ", help="write inputs as in0, ... and outputs as out0, ...")
    parser.add_argument("--fallback", choices=("cpu",), help="let the CPU run ops that have no kernel, slowly")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


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
    page.table(_values("input", report["inputs"], "source"))
    page.table(_values("output", report["outputs"], "first elements"))
    _timings(report, page)
    if report["saved"]:
        page.text(f"\ninputs and outputs are in {report['saved']}")


def _values(role: str, values: Sequence[Mapping[str, Any]], last: str) -> OutputTable:
    table = OutputTable(
        (
            Column(role),
            Column("type"),
            Column("min", drop=3, number=True),
            Column("max", drop=3, number=True),
            Column("mean", drop=2, number=True),
            Column("non-finite", drop=1, number=True),
            Column(last, prose=True),
        )
    )
    for number, value in enumerate(values):
        if value["kind"] != "array":
            table.add(str(number), value["kind"], *[""] * 4, value.get("source") or str(value["value"]))
            continue
        ranges = ["" if value[key] is None else f"{value[key]:.4g}" for key in ("min", "max", "mean")]
        bad = Text(str(value["nonfinite"]), style="bold red" if value["nonfinite"] else "")
        shown = value["source"] if "source" in value else _elements(value["head"])
        table.add(str(number), f"{value['dtype']}{value['shape']}", *ranges, bad, shown)
    return table


def _elements(head: Sequence[Any]) -> str:
    return " ".join(f"{x:.4g}" if isinstance(x, float) else str(x) for x in head)


def _timings(report: Mapping[str, Any], page: Page) -> None:
    stages = {name: took for name, took in report["load"].items() if name != "total"}
    parts = ", ".join(f"{name} {duration(took)}" for name, took in stages.items())
    table = OutputTable((Column("time"), Column("", number=True), Column("", prose=True)))
    table.add("load", duration(report["load"]["total"]), parts)
    table.add("first call", duration(report["first_call"]), "prepares what loading did not for these shapes")
    if (warm := report["warm"]) is not None:
        table.add(
            "warm call",
            duration(warm["median"]),
            f"median of {warm['calls']}; min {duration(warm['min'])}, p90 {duration(warm['p90'])}",
        )
    page.table(table)
