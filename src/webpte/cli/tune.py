"""Time the kernels that can run a program on this machine, and store the fastest for every later load."""

from __future__ import annotations

import argparse

from ..measure.tune import TuneReport, tune_file
from ..runtime.tuning import ROUNDS
from ..text import duration, plural
from .output import print_json
from .parsing import add_json, add_program, number
from .terminal import Column, OutputTable, Page, bars, open_page

MAX_JOBS = 4  # named of those that were not measured


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser)
    parser.add_argument("--seconds", type=number(above=0), metavar="N", help="stop after about N seconds (no limit)")
    parser.add_argument("--force", action="store_true", help="also measure what was measured before")
    add_json(parser, "print the measurements as JSON")


def run(arguments: argparse.Namespace) -> None:
    with bars(ticking=False) as progress:
        report = tune_file(
            arguments.file, arguments.data, budget=arguments.seconds, force=arguments.force, progress=progress
        )
    if arguments.json:
        print_json(report)
        return
    page = open_page()
    if not report["jobs"] and not report["left"]:
        page.text("everything was measured before; --force measures it again")
        return
    if report["jobs"]:
        _show(report, page)
    if left := report["left"]:
        names = ", ".join(dict.fromkeys(f"{job['method']}: {job['job']}" for job in left[:MAX_JOBS]))
        more = f" and {len(left) - MAX_JOBS} more" if len(left) > MAX_JOBS else ""
        page.text(f"\nno time left for {plural(len(left), 'job')} ({names}{more}); run tune again for the rest")


def _show(report: TuneReport, page: Page) -> None:
    table = OutputTable(
        (
            Column("job"),
            Column("uses", drop=3, number=True),
            Column("chosen"),
            Column("time", drop=2, number=True),
            Column("default", drop=1),
            Column("gain", number=True),
        )
    )
    gains = [job for job in report["jobs"] if job["best"] != job["default"]]
    for job in report["jobs"]:
        gain = f"{job['gain']:.2f} x" if job in gains else ""
        seconds = duration(job["seconds"][job["best"]])
        table.add(job["job"], str(job["uses"]), job["best"], seconds, job["default"], gain)
    page.table(table)
    page.text(
        f"\n{len(gains)} of {plural(len(report['jobs']), 'job')} have a kernel that was faster than the default in "
        f"{ROUNDS - 1} of {ROUNDS} rounds and by 5 % in the median, twice; otherwise the default stays"
    )
    if report["unconfirmed"]:
        page.text(f"not confirmed by a second measurement: {', '.join(report['unconfirmed'])}", style="yellow")
    if report["busy"]:
        page.text(
            f"the machine was busy ({report['busy']}): measure again with --force when it is idle", style="bold yellow"
        )
    page.text(f"stored in {report['stored']}")
