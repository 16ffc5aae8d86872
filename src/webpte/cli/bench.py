"""Measure a program here: loading, calls by size or tokens by context, memory, and the host's share."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from ..tools.bench import bench_file
from ..tools.plots import plot_bench, require_matplotlib
from ..tools.text import size
from ..tools.timing import seconds
from .bars import line
from .terminal import open_console


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("--method", default="forward", metavar="NAME", help="the method to measure (forward)")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--seconds", type=float, default=1.0, metavar="S", help="to spend on each point (1)")
    parser.add_argument("--plot", metavar="PNG", help="draw rates or times by size; needs matplotlib")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> None:
    if arguments.plot:
        require_matplotlib()  # before minutes are spent on measuring
    with line() as progress:
        report = bench_file(
            arguments.file,
            arguments.data,
            method=arguments.method,
            seconds=arguments.seconds,
            progress=progress,
        )
    if arguments.plot:
        plot_bench(report, arguments.plot)
    if arguments.json:
        print(json.dumps(report, indent=2))
    else:
        _show(report, open_console())


def _show(report: Mapping[str, Any], console: Console) -> None:
    console.print(Text(f"{report['file']}  {size(report['bytes'])}, {report['kind']}", style="bold"))
    console.print(f"{report['method']} on {report['machine']['adapter']}")
    console.print(_loads(report["load"]))
    memory = report["memory"]
    console.print(
        f"\nGPU memory: weights {size(memory['constant'])}, state {size(memory['state'])}, "
        f"activations {size(memory['activation'])}, readback {size(memory['readback'])}"
    )
    if report["kind"] == "program":
        console.print(_sizes(report["sizes"]))
    else:
        console.print(_prefill(report["prefill"]))
        if left := report["prefill_left_out"]:
            console.print(
                f"left out: {', '.join(map(str, left))} tokens, which take too long; raise --seconds", style="dim"
            )
        console.print(_decode(report["decode"], report["capacity"]))
    console.print(_host(report["host"]))


def _table(*titles: str) -> Table:
    """The first column is text, the others are numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for number, title in enumerate(titles):
        table.add_column(f"\n{title}", header_style="bold", justify="right" if number else "left")
    return table


def _loads(load: Mapping[str, Any]) -> Group:
    stages = list(dict.fromkeys(stage for name in ("cold", "warm") for stage in load[name] if stage != "total"))
    table = _table("load", "total", *stages)
    for name in ("cold", "warm"):
        table.add_row(
            name, *(seconds(load[name][stage]) if stage in load[name] else "" for stage in ("total", *stages))
        )
    meaning = Text("\n".join(f"{name}: {load['meaning'][name]}" for name in ("cold", "warm")), style="dim")
    return Group(table, meaning)


def _sizes(points: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("shapes", "median", "min", "p90", "calls", "first call")
    for p in points:
        shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in p["shapes"])
        times = (seconds(p[key]) for key in ("median", "min", "p90"))
        table.add_row(shapes, *times, str(p["calls"]), seconds(p["first"]))
    return table


def _prefill(points: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("prefill", "tok/s", "median", "min", "p90", "calls")
    for p in points:
        times = (seconds(p[key]) for key in ("median", "min", "p90"))
        table.add_row(f"{p['tokens']} tokens", f"{p['tokens_per_second']:.4g}", *times, str(p["calls"]))
    return table


def _decode(points: Sequence[Mapping[str, Any]], capacity: int) -> Table:
    table = _table(f"decode, of {capacity}", "tok/s", "median", "min", "p90", "calls", "tok/s paced", "per submit")
    for p in points:
        times = (seconds(p[key]) for key in ("median", "min", "p90"))
        paced = (f"{p['paced_tokens_per_second']:.4g}", str(p["per_submit"]))
        table.add_row(f"after {p['context']}", f"{p['tokens_per_second']:.4g}", *times, str(p["calls"]), *paced)
    return table


def _host(host: Mapping[str, Any]) -> str:
    each = f", {seconds(host['per_dispatch'])} per dispatch" if host["per_dispatch"] is not None else ""
    return (
        f"\nhost: busy for {seconds(host['busy'])} of a small call's {seconds(host['call'])}{each}; "
        f"{host['dispatches']} dispatches in {host['submits']} submit{'s' * (host['submits'] != 1)}"
    )
