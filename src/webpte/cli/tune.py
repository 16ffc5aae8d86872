"""Time the kernels that could serve a program on this machine, and remember the fastest for every later load."""

from __future__ import annotations

import argparse
import json

from ..tools.timing import seconds
from ..tools.tune import tune_file
from .bars import bars
from .tables import Column, Table
from .terminal import open_page


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
    page = open_page()
    if not report["jobs"]:
        page.text("nothing left to measure; --again measures everything once more")
        return
    table = Table(
        (
            Column("job"),
            Column("uses", drop=3, number=True),
            Column("fastest"),
            Column("time", drop=2, number=True),
            Column("usual", drop=1),
            Column("gain", number=True),
        )
    )
    for job in report["jobs"]:
        gain = f"{job['speedup']:.2f} x" if job["best"] != job["default"] else ""
        table.add(job["job"], str(job["uses"]), job["best"], seconds(job["seconds"][job["best"]]), job["default"], gain)
    page.table(table)
    page.text(f"kept in {report['stored']}")
