"""Time the kernels that could serve a program on this machine, and remember the fastest for every later load."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from ..runtime.tuning import ROUNDS
from ..text import duration
from ..tools.tune import tune_file
from .output import print_json
from .parsing import real
from .terminal import Column, OutputTable, Page, bars, open_page

SHOWN = 4  # jobs that were not measured


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument(
        "--seconds", type=real(above=0), metavar="N", help="stop after about this long; as long as it takes"
    )
    parser.add_argument("--again", action="store_true", help="also measure what was measured before")
    parser.add_argument("--json", action="store_true", help="print what was measured as JSON")


def run(arguments: argparse.Namespace) -> None:
    with bars(ticking=False) as progress:
        report = tune_file(
            arguments.file, arguments.data, budget=arguments.seconds, again=arguments.again, progress=progress
        )
    if arguments.json:
        print_json(report)
        return
    page = open_page()
    if not report["jobs"] and not report["left"]:
        page.text("nothing left to measure; --again measures everything once more")
        return
    if report["jobs"]:
        _show(report, page)
    if left := report["left"]:
        names = ", ".join(dict.fromkeys(f"{job['method']}: {job['job']}" for job in left[:SHOWN]))
        more = f" and {len(left) - SHOWN} more" if len(left) > SHOWN else ""
        count = f"{len(left)} jobs were" if len(left) > 1 else "1 job was"
        page.text(f"\ntime was up before {count} measured ({names}{more}); run it again for the rest")


def _show(report: Mapping[str, Any], page: Page) -> None:
    table = OutputTable(
        (
            Column("job"),
            Column("uses", drop=3, number=True),
            Column("taken"),
            Column("time", drop=2, number=True),
            Column("usual", drop=1),
            Column("gain", number=True),
        )
    )
    gains = [job for job in report["jobs"] if job["best"] != job["default"]]
    for job in report["jobs"]:
        gain = f"{job['gain']:.2f} x" if job in gains else ""
        took = duration(job["seconds"][job["best"]])
        table.add(job["job"], str(job["uses"]), job["best"], took, job["default"], gain)
    page.table(table)
    page.text(
        f"\n{len(gains)} of {len(report['jobs'])} jobs have a kernel that was faster than the usual one in "
        f"{ROUNDS - 1} of {ROUNDS} rounds and by 5 % in the median; less may be noise, and keeps the usual one"
    )
    page.text(f"kept in {report['stored']}")
