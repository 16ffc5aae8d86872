"""Tell what this machine has, what programs can use of it, and whether it works. Exit code 1 if it does not."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..tools.doctor import bug_report, examine
from ..tools.text import size
from ..tools.timing import seconds
from .terminal import open_console


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--no-test", action="store_true", help="leave out the self-test, which computes on the device")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    report = examine(self_test=not arguments.no_test)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        _show(report, open_console())
    return 0 if report["ok"] else 1


def _show(report: Mapping[str, Any], console: Console) -> None:
    console.print(_adapters(report["adapters"]))
    if report["features"]:
        console.print(_features(report["features"]))
        console.print(_limits(report["limits"]))
    if report["variants"]:
        console.print(_variants(report["variants"]))
    if report["self_test"] is not None:
        console.print(_self_test(report["self_test"]))
    if report["remedies"]:
        console.print(Text("\nadvice", style="bold"))
        notes = Table.grid(padding=(0, 1))
        for line in report["remedies"]:
            notes.add_row(" •", line)
        console.print(notes)
    console.print(Text("\nfor a bug report", style="bold"))
    print(bug_report(report))  # as it is: what is pasted should not be wrapped
    verdict = "this machine can run programs" if report["ok"] else "this machine cannot run programs"
    console.print(Text(f"\n{verdict}", style="bold green" if report["ok"] else "bold red"))


def _table(*titles: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0))
    for title in titles:
        table.add_column(f"\n{title}", header_style="bold", overflow="fold")
    return table


def _adapters(adapters: Sequence[Mapping[str, Any]]) -> Table | Text:
    if not adapters:
        return Text("no WebGPU adapter was found", style="bold red")
    table = _table("", "adapter", "backend", "kind", "driver")
    for adapter in adapters:
        style = "" if adapter["chosen"] else "dim"
        mark = "*" if adapter["chosen"] else ""
        table.add_row(mark, adapter["device"], adapter["backend"], adapter["kind"], adapter["driver"], style=style)
    table.add_row("", "* is the one that programs run on", style="dim")
    return table


def _features(features: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("feature", "", "so")
    for feature in features:
        table.add_row(feature["name"], "yes" if feature["offered"] else "no", feature["effect"])
    return table


def _limits(limits: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("limit", "here", "browser", "what it decides")
    for limit in limits:
        shown = size if limit["name"].endswith("-size") else str
        table.add_row(limit["name"], shown(limit["offered"]), shown(limit["browser"]), limit["decides"])
    return table


def _variants(variants: Sequence[Mapping[str, Any]]) -> Group:
    table = _table("kernels for", "shape", "taken", "because it is", "not taken")
    for v in variants:
        table.add_row(v["family"], v["shape"], v["chosen"], v["why"], ", ".join(v["others"]))
    return Group(table, Text("webpte tune FILE measures them all for a program's own shapes", style="dim"))


def _self_test(test: Mapping[str, Any]) -> Table:
    table = _table("self-test", "", "")
    if "problem" in test:
        table.add_row("did not finish", Text("failed", style="bold red"), test["problem"])
    for check in test["checks"]:
        table.add_row(
            check["name"],
            Text("ok" if check["ok"] else "failed", style="" if check["ok"] else "bold red"),
            check["detail"],
        )
    if test["ok"]:
        trip = test["round_trip"]
        table.add_row(
            "round trip of one dispatch",
            seconds(trip["median"]),
            f"median of {trip['calls']}; min {seconds(trip['min'])}",
        )
        table.add_row("copy on the device", f"{size(test['copy_bytes_per_second'])}/s", "")
    return table
