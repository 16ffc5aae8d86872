"""Measure a program here: loading, calls by size or tokens by context, memory, and the host's share."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

from ..text import duration, size
from ..tools.bench import bench_file, plot_bench, require_matplotlib
from .output import print_json
from .parsing import check_output, real
from .terminal import Column, OutputTable, Page, bars, open_page


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("--method", default="forward", metavar="NAME", help="the method to measure (forward)")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--seconds", type=real(above=0), default=1.0, metavar="S", help="to spend on each point (1)")
    parser.add_argument("--plot", metavar="PNG", help="draw rates or times by size; needs matplotlib")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> None:
    if arguments.plot:
        check_output("--plot", arguments.plot, (".png", ".svg", ".pdf"))
        require_matplotlib()  # before minutes are spent on measuring
    with bars(ticking=False) as progress:
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
        print_json(report)
    else:
        _show(report, open_page())


def _show(report: Mapping[str, Any], page: Page) -> None:
    page.text(f"{report['file']}  {size(report['bytes'])}, {report['kind']}", style="bold")
    page.text(f"{report['method']} on {report['machine']['adapter']}")
    page.table(_loads(report["load"]))
    for name in ("cold", "warm"):
        page.text(f"{name}: {report['load']['meaning'][name]}", style="dim")
    memory = report["memory"]
    page.text(
        f"\nGPU memory: weights {size(memory['constant'])}, state {size(memory['state'])}, "
        f"activations {size(memory['activation'])}, readback {size(memory['readback'])}"
    )
    if report["kind"] == "program":
        page.table(_sizes(report["sizes"]))
    else:
        page.table(_prefill(report["prefill"]))
        if left := report["prefill_left_out"]:
            page.text(
                f"left out: {', '.join(map(str, left))} tokens, which take too long; raise --seconds", style="dim"
            )
        page.table(_decode(report["decode"], report["capacity"]))
    page.text(_host(report["host"]))


def _table(first: str, *numbers: tuple[str, int]) -> OutputTable:
    """The first column is text, the others are numbers, with the order in which they may go."""
    return OutputTable((Column(first), *(Column(title, drop, number=True) for title, drop in numbers)))


TIMES = (("median", 0), ("min", 2), ("p90", 1), ("calls", 4))


def _loads(load: Mapping[str, Any]) -> OutputTable:
    stages = list(dict.fromkeys(stage for name in ("cold", "warm") for stage in load[name] if stage != "total"))
    table = _table("load", ("total", 0), *((stage, 1) for stage in stages))
    for name in ("cold", "warm"):
        table.add(name, *(duration(load[name][stage]) if stage in load[name] else "" for stage in ("total", *stages)))
    return table


def _sizes(points: Sequence[Mapping[str, Any]]) -> OutputTable:
    table = _table("shapes", *TIMES, ("first call", 3))
    for p in points:
        shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in p["shapes"])
        table.add(shapes, *_times(p), duration(p["first"]))
    return table


def _times(point: Mapping[str, Any]) -> list[str]:
    return [*(duration(point[key]) for key in ("median", "min", "p90")), str(point["calls"])]


def _prefill(points: Sequence[Mapping[str, Any]]) -> OutputTable:
    table = _table("prefill", ("tok/s", 0), *TIMES)
    for p in points:
        table.add(f"{p['tokens']} tokens", f"{p['tokens_per_second']:.4g}", *_times(p))
    return table


def _decode(points: Sequence[Mapping[str, Any]], capacity: int) -> OutputTable:
    table = _table(f"decode, of {capacity}", ("tok/s", 0), *TIMES, ("tok/s paced", 0), ("per submit", 3))
    for p in points:
        paced = (f"{p['paced_tokens_per_second']:.4g}", str(p["per_submit"]))
        table.add(f"after {p['context']}", f"{p['tokens_per_second']:.4g}", *_times(p), *paced)
    return table


def _host(host: Mapping[str, Any]) -> str:
    each = f", {duration(host['per_dispatch'])} per dispatch" if host["per_dispatch"] is not None else ""
    return (
        f"\nhost: busy for {duration(host['busy'])} of a small call's {duration(host['call'])}{each}; "
        f"{host['dispatches']} dispatches in {host['submits']} submit{'s' * (host['submits'] != 1)}"
    )
