"""python -m bench [--rows NAME,…] [--repeat 15] [--json out.json] [--plot out.png] [--units] [--write-docs]"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from rich.console import Console

from . import documentation
from .goals import BARE, UNIT, UNIT_ROW, UNIT_ROWS, goals, plain_units
from .goals import units as unit_goals
from .measure import Say, Seat, facts, measure
from .plot import draw
from .results import Report
from .rows import ROWS
from .tables import goals_grid, grid, ratio, to_rich
from .workers import ENVIRONMENTS, Worker


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    console = Console()
    report = Report.read(options.read) if options.read else run(options, console)
    show(report, options.units, console)
    if options.plot is not None:
        draw(report, options.plot)
    if options.write_docs:
        write_docs(report, options.units, console)
    return 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="webpte, the bare engine and peers, in turns.")
    parser.add_argument("--rows", type=names(ROWS), help="some of " + ", ".join(ROWS))
    parser.add_argument("--contenders", type=names(ENVIRONMENTS), help="some of " + ", ".join(ENVIRONMENTS))
    parser.add_argument("--repeat", type=int, default=15, help="runs of each contender that count")
    parser.add_argument("--json", type=Path, help="where results go; rows of an existing file are kept or replaced")
    parser.add_argument("--read", type=Path, help="show a file that --json wrote, and measure nothing")
    parser.add_argument("--plot", type=Path, help="a picture of the results")
    parser.add_argument("--units", action="store_true", help="models in units of a bare GEMV of the same turns")
    parser.add_argument("--write-docs", action="store_true", help="docs/benchmarks.md, from all results so far")
    return parser.parse_args(arguments)


def names(known: Mapping[str, object]) -> Any:
    def split(text: str) -> list[str]:
        chosen = [name.strip() for name in text.split(",")]
        if unknown := [name for name in chosen if name not in known]:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
        return chosen

    return split


def run(options: argparse.Namespace, console: Console) -> Report:
    with ExitStack() as stack:
        workers = {name: Worker(ENVIRONMENTS[name]) for name in options.contenders or ENVIRONMENTS}
        workers[UNIT] = Worker(ENVIRONMENTS[BARE])
        for worker in workers.values():
            stack.callback(worker.stop)
        status = stack.enter_context(console.status("starting"))
        say: Say = lambda text: status.update(text)  # noqa: E731
        report = Report(run_facts(workers), {})
        if options.json is not None and options.json.exists():
            report = Report.read(options.json).merged(report)
        for row, seats in plan(options, workers).items():
            started = time.perf_counter()
            report.rows[row] = measure(ROWS[row].title, seats, options.repeat, say)
            report.dates[row] = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
            console.print(f"{ROWS[row].title}: {time.perf_counter() - started:.0f} s", highlight=False)
            if options.json is not None:
                report.save(options.json)  # after each row: an interrupted run is not lost
        return report


def plan(options: argparse.Namespace, workers: Mapping[str, Worker]) -> dict[str, dict[str, Seat]]:
    """Return the contenders of each row. Rows of units also time the unit, so that disturbances meet both."""
    if options.units:
        chosen = options.rows or UNIT_ROWS
        unit = Seat(workers[UNIT], ROWS[UNIT_ROW])
        return {
            row: {**{name: Seat(workers[name], ROWS[row]) for name in seated if name in workers}, UNIT: unit}
            for row, seated in UNIT_ROWS.items()
            if row in chosen
        }
    chosen = options.rows or [row.name for row in ROWS.values() if not row.unit]
    seated = {name: worker for name, worker in workers.items() if name != UNIT}
    return {row: {name: Seat(worker, ROWS[row]) for name, worker in seated.items()} for row in chosen}


def run_facts(workers: Mapping[str, Worker]) -> dict[str, Any]:
    report = facts(workers)
    adapter: dict[str, Any] = report.get(UNIT, {}).get("adapter", {})
    versions = {
        name: ", ".join(f"{key} {value}" for key, value in about.items() if key not in ("adapter", "error"))
        for name, about in report.items()
        if name not in (UNIT, BARE)
    }
    return {
        "adapter": f"{adapter.get('device', 'unknown')} ({adapter.get('backend_type')})",
        "driver": adapter.get("description", "unknown"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "python": platform.python_version(),
        "versions": {name: text for name, text in versions.items() if text},
    }


def show(report: Report, units: bool, console: Console) -> None:
    console.print(f"{report.facts['adapter']}, {report.facts['driver']}")
    if units:
        console.print(to_rich(goals_grid(unit_goals(report)), "In units of a bare GEMV 4096² of the same turns"))
        console.print(f"a GEMV with 4 rows an invocation takes {ratio(plain_units(report))} of them", highlight=False)
        return
    for table in (grid(report), grid(report, units=True)):
        if table.rows:
            console.print(to_rich(table, "median of each row"))
            for i, note in enumerate(table.notes, 1):
                console.print(f"[{i}] {note}", markup=False, highlight=False)
    console.print(to_rich(goals_grid([goal for goal in goals(report) if goal.ratio is not None]), "goals"))


def write_docs(report: Report, units: bool, console: Console) -> None:
    """From what is stored and what was measured now; units are kept apart, because their rows have other seats."""
    stored = {name: documentation.STORED.with_name(f"{name}.json") for name in ("results", "units")}
    mine = stored["units" if units else "results"]
    (Report.read(mine).merged(report) if mine.exists() else report).save(mine)
    results = {name: Report.read(path) if path.exists() else None for name, path in stored.items()}
    if results["results"] is None:
        console.print("there are no results of whole rows yet: run without --units first")
        return
    for path in documentation.write(results["results"]):
        console.print(f"wrote {path}")


if __name__ == "__main__":
    sys.exit(main())
