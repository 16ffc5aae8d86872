"""Measure a program on this machine: loading, calls by size or tokens by context, memory, host time.

With --report, measure the GPU itself, and write a report to send.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..measure.bench import (
    BenchReport,
    DecodePoint,
    HostShare,
    LoadTimes,
    PointTimes,
    PrefillPoint,
    SizePoint,
    bench_file,
    plot_bench,
    require_matplotlib,
)
from ..measure.bench_report import device_report, markdown
from ..text import duration, plural, size
from .output import json_text, print_json, say
from .parsing import add_data, add_json, check_input, check_output, number
from .terminal import Column, OutputTable, Page, bars, open_page

REPORT = """\
--report takes about a minute on a GPU: op checks, rates of copies and dispatches, and three decoders with random 4-bit
weights whose tokens are compared with stored ones. It writes PREFIX.json and PREFIX.md and prints the second. Paste it
into an issue of the kind "GPU report". The files contain no user names and no paths, and nothing is sent.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = REPORT
    parser.add_argument("file", nargs="*", help="the .pte program; with --report, none or several")
    add_data(parser)
    parser.add_argument("--method", default="forward", metavar="NAME", help="the method to measure (forward)")
    parser.add_argument("--seconds", type=number(above=0), default=1.0, metavar="S", help="time for each point (1)")
    parser.add_argument("--plot", metavar="PNG", help="plot rates or times by size; requires matplotlib")
    parser.add_argument("--report", action="store_true", help="measure the GPU, and write a report to send")
    parser.add_argument(
        "-o", "--output", metavar="PREFIX", help="name of the report's files without suffix (webpte-report)"
    )
    add_json(parser)
    parser.set_defaults(downloads=("file",))


def run(arguments: argparse.Namespace) -> None:
    if arguments.report:
        _write_report(arguments)
        return
    if arguments.output:
        raise InputError("requires --report", argument="--output", code="not_applicable")
    if len(arguments.file) != 1:
        got = ", ".join(arguments.file) or "none"
        raise InputError(argument="file", expected="one .pte program, or --report", got=got, code="no_program")
    if arguments.plot:
        check_output("--plot", arguments.plot, (".png", ".svg", ".pdf"))
        require_matplotlib()  # before minutes are spent on measuring
    with bars(ticking=False) as progress:
        report = bench_file(
            arguments.file[0],
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


def _write_report(arguments: argparse.Namespace) -> None:
    if named := [name for name in ("data", "plot") if getattr(arguments, name)]:
        raise InputError(f"not allowed with --{', --'.join(named)}", argument="--report", code="not_applicable")
    prefix = arguments.output or "webpte-report"
    paths = [Path(f"{prefix}{suffix}") for suffix in (".json", ".md")]
    for path in paths:
        check_output("--output", str(path))
    for file in arguments.file:
        check_input("file", file)
    with bars(ticking=False) as progress:
        report = device_report(arguments.file, seconds=arguments.seconds, progress=progress)
    for path, text in zip(paths, (json_text(report) + "\n", markdown(report)), strict=True):
        path.write_text(text, "utf-8")
    if arguments.json:
        print_json(report)
    else:
        say(markdown(report))
        say(f"written: {paths[0]}, {paths[1]}", error=True)


def _show(report: BenchReport, page: Page) -> None:
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
    if report["sizes"] is not None:
        page.table(_sizes(report["sizes"]))
    if report["prefill"] is not None:
        page.table(_prefill(report["prefill"]))
        if left := report["prefill_left_out"]:
            page.text(
                f"not measured: {', '.join(map(str, left))} tokens, which take too long; raise --seconds", style="dim"
            )
    if report["decode"] is not None and report["capacity"] is not None:
        page.table(_decode(report["decode"], report["capacity"]))
    page.text(_host(report["host"]))


def _table(first: str, *numbers: tuple[str, int]) -> OutputTable:
    """Return a table with a text column and number columns; each has a title and its drop order."""
    return OutputTable((Column(first), *(Column(title, drop, number=True) for title, drop in numbers)))


TIMES = (("median", 0), ("min", 2), ("p90", 1), ("calls", 4))


def _loads(load: LoadTimes) -> OutputTable:
    stages = list(dict.fromkeys(stage for name in ("cold", "warm") for stage in load[name] if stage != "total"))
    table = _table("load", ("total", 0), *((stage, 1) for stage in stages))
    for name in ("cold", "warm"):
        table.add(name, *(duration(load[name][stage]) if stage in load[name] else "" for stage in ("total", *stages)))
    return table


def _sizes(points: Sequence[SizePoint]) -> OutputTable:
    table = _table("shapes", *TIMES, ("first call", 3))
    for p in points:
        shapes = ", ".join("x".join(map(str, shape)) or "scalar" for shape in p["shapes"])
        table.add(shapes, *_times(p), duration(p["first"]))
    return table


def _times(point: PointTimes) -> list[str]:
    """Return the cells of a point. One call has no distribution: its time is marked as such."""
    if point["calls"] == 1:
        return [f"{duration(point['median'])} (1 call)", "", "", "1"]
    return [*(duration(point[key]) for key in ("median", "min", "p90")), str(point["calls"])]


def _prefill(points: Sequence[PrefillPoint]) -> OutputTable:
    table = _table("prefill", ("tok/s", 0), *TIMES)
    for p in points:
        table.add(plural(p["tokens"], "token"), f"{p['tokens_per_second']:.4g}", *_times(p))
    return table


def _decode(points: Sequence[DecodePoint], capacity: int) -> OutputTable:
    table = _table(f"decode, of {capacity}", ("tok/s", 0), *TIMES, ("tok/s paced", 0), ("per submit", 3))
    for p in points:
        paced = (f"{p['paced_tokens_per_second']:.4g}", str(p["per_submit"]))
        table.add(f"after {p['context']}", f"{p['tokens_per_second']:.4g}", *_times(p), *paced)
    return table


def _host(host: HostShare) -> str:
    each = f", {duration(host['per_dispatch'])} per dispatch" if host["per_dispatch"] is not None else ""
    return (
        f"\nhost: busy for {duration(host['busy'])} of a small call's {duration(host['call'])}{each}; "
        f"{plural(host['dispatches'], 'dispatch')} in {plural(host['submits'], 'submit')}"
    )
