"""List everything that prevents a program from running: ops, dtypes, layouts, constants, limits. Needs no GPU."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from ..debug.check import MEMORY_KINDS, CheckReport, MethodCheck, ProblemReport, ProgramMemory, check_file, device_caps
from ..text import plural, size
from .output import print_json
from .parsing import add_json, add_program
from .terminal import Column, OutputTable, Page, open_page

MAX_CALLS = 4  # named for one problem
TITLES = {
    "constant": "constants without data",
    "backend": "delegates that webpte cannot run",
    "op": "ops in delegates without a kernel",
    "kernel": "ops outside delegates without a kernel",
    "dtype": "dtypes",
    "graph": "calls that cannot be lowered",
    "limit": "limits of the device",
    "memory": "memory",
}


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser)
    parser.set_defaults(downloads=())  # ranges of the file suffice
    device = parser.add_mutually_exclusive_group()
    device.add_argument(
        "--adapter", action="store_true", help="check against this machine's adapter (the default if there is one)"
    )
    device.add_argument(
        "--limits", metavar="LIMITS", help="check against these limits: browser, or NAME=NUMBER,... below those"
    )
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    report = check_file(arguments.file, arguments.data, device_caps(arguments.adapter, arguments.limits))
    if arguments.json:
        print_json(report)
    else:
        _show(report, open_page())
    return 0 if report["ok"] else 1


def _show(report: CheckReport, page: Page) -> None:
    page.text(f"{report['file']}  {size(report['bytes'])}", style="bold")
    page.text(f"on {report['device']}")
    for kind, title in TITLES.items():
        problems = [problem for problem in report["problems"] if problem["kind"] == kind]
        if problems:
            page.text(f"\n{title}", style="bold")
            page.bullets([_problem(p, several=len(report["methods"]) > 1) for p in problems])
    if report["remedies"]:
        page.text("\nwhat to do", style="bold")
        page.bullets(report["remedies"])
    page.table(_memory(report["memory"]))
    for method in report["methods"]:
        if method["memory"] is not None:
            _method(method, page)
    count = len(report["problems"])
    verdict = f"\n{plural(count, 'problem')}" if count else "\nno problems: the program can run"
    page.text(verdict, style="bold red" if count else "bold green")


def _problem(problem: ProblemReport, several: bool) -> Text:
    """Return a problem and, below it, the calls concerned."""
    method = f"{problem['method']}: " if several and problem["method"] else ""
    text = Text(f"{method}{problem['subject']} {problem['detail']}", style="red")
    where = list(problem["where"])
    if where:
        more = f", and {len(where) - MAX_CALLS} more (--json lists all)" if len(where) > MAX_CALLS else ""
        text.append(f"\n{'; '.join(where[:MAX_CALLS])}{more}", style="default")
    return text


def _memory(memory: ProgramMemory) -> OutputTable:
    offered = size(memory["offered"]) if memory["offered"] is not None else "not reported by WebGPU"
    table = OutputTable((Column("memory"), Column("needed", number=True), Column("offered", number=True)))
    needed: Mapping[str, Any] = memory
    for key, name in MEMORY_KINDS.items():
        table.add(name, size(needed[key]))
    table.add("total", size(memory["total"]), offered)
    return table


def _method(method: MethodCheck, page: Page) -> None:
    assert method["calls"] is not None and method["submits"] is not None
    title = f"\n{method['name']}: {plural(method['calls'], 'call')} in {plural(method['submits'], 'submit')}"
    if method["cpu_calls"]:
        title += ", on the CPU: " + ", ".join(f"{name} x{count}" for name, count in method["cpu_calls"].items())
    page.text(title)
    table = OutputTable((Column("limit"), Column("needed", number=True), Column("offered", number=True)))
    for limit in method["limits"]:
        text = size if limit["name"].endswith("-size") else str
        style = "red" if limit["needs"] > limit["offers"] else ""
        table.add(limit["name"], text(limit["needs"]), text(limit["offers"]), style=style)
    page.table(table)
