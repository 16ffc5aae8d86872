"""Time the kernels that could serve a program on this machine, and remember the fastest for every later load."""

from __future__ import annotations

import argparse
import json

from rich.table import Table

from ..tools.tune import tune_file
from .bars import bars
from .terminal import open_console


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--seconds", type=float, metavar="N", help="stop after about this long; as long as it takes")
    parser.add_argument("--again", action="store_true", help="also measure what was measured before")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")


def run(arguments: argparse.Namespace) -> None:
    with bars() as progress:
        report = tune_file(
            arguments.file, arguments.data, budget=arguments.seconds, again=arguments.again, progress=progress
        )
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    console = open_console()
    if not report["jobs"]:
        console.print("nothing left to measure; --again measures everything once more")
        return
    table = Table("job", "uses", "fastest", "time", "usual", "gain", box=None)
    for job in report["jobs"]:
        times = f"{1e3 * job['seconds'][job['best']]:.3g} ms"
        gain = f"{job['speedup']:.2f} x" if job["best"] != job["default"] else ""
        table.add_row(job["job"], str(job["uses"]), job["best"], times, job["default"], gain)
    console.print(table)
    console.print(f"kept in {report['stored']}")
