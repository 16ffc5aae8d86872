"""Measure where a call's time goes: on the host by what it does, on the device by op, kernel and module."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..text import duration, size
from ..tools.profile import profile_file
from .output import print_json
from .parsing import check_output, whole
from .run import INPUTS
from .terminal import Column, OutputTable, Page, bars, open_page

SHOWN = 12  # rows of a table, unless all are asked for
Rows = Sequence[Mapping[str, Any]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = INPUTS
    parser.add_argument("file", help="the .pte program")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--method", default="forward", metavar="NAME", help="the method to call (forward)")
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]VALUE", help="an input, see below")
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of random inputs (0)")
    parser.add_argument(
        "--repeat", type=whole(1), default=5, metavar="N", help="calls to measure; the fastest is shown (5)"
    )
    parser.add_argument("--trace", metavar="JSON", help="write the call as a Chrome trace: open it in ui.perfetto.dev")
    parser.add_argument("--all", action="store_true", help=f"list everything, not only the first {SHOWN} of a kind")
    parser.add_argument("--no-peak", action="store_true", help="do not measure what the device can do at most")
    parser.add_argument("--fallback", choices=("cpu",), help="let the CPU run ops that have no kernel, slowly")
    parser.add_argument("--json", action="store_true", help="print the same as JSON, with every dispatch")


def run(arguments: argparse.Namespace) -> None:
    check_output("--trace", arguments.trace, (".json",))
    with bars(ticking=False) as progress:
        report = profile_file(
            arguments.file,
            arguments.data,
            arguments.input,
            method=arguments.method,
            repeat=arguments.repeat,
            seed=arguments.seed,
            peak=not arguments.no_peak,
            trace=arguments.trace,
            fallback=arguments.fallback,
            progress=progress,
        )
    if arguments.json:
        print_json(report)
        return
    shown = len(report["dispatches"]) if arguments.all else SHOWN
    page = open_page()
    page.text(f"{report['file']}, {report['method']}", style="bold")
    page.text(f"on {report['adapter']}")
    page.text(", ".join(f"input {i} {source}" for i, source in enumerate(report["inputs"])))
    _host(report, page)
    if report["dispatches"]:
        _device(report, page)
        page.table(_ops("op", report["ops"], report["peak"], shown))
        page.table(_kernels(report["kernels"], shown))
        page.table(_modules(report, shown))
    if report["trace"]:
        page.text(f"\nthe timed call is in {report['trace']}: open it in ui.perfetto.dev")


def _table(first: str, *numbers: tuple[str, int]) -> OutputTable:
    """The first column is text, the others numbers, with the order in which they may go."""
    return OutputTable((Column(first), *(Column(title, drop, number=True) for title, drop in numbers)))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _host(report: Mapping[str, Any], page: Page) -> None:
    calls, host = report["calls"], report["host"]
    page.text(
        f"\na call takes {duration(calls['min'])}, the fastest of {calls['calls']}; "
        f"median {duration(calls['median'])}, p90 {duration(calls['p90'])}",
        style="bold",
    )
    table = _table("host", ("time", 0), ("share", 1))
    for span in host["spans"]:
        table.add(span["name"], duration(span["seconds"]), _percent(span["share"]))
    table.add("the rest", duration(host["rest"]), _percent(host["rest"] / host["seconds"]))
    page.table(table)
    submits = f"{report['submits']} submit{'s' * (report['submits'] != 1)}"
    moved = f"\n{submits}; {size(report['bytes_to_device'])} to the device, {size(report['bytes_to_host'])} back"
    if report["cpu_calls"]:
        moved += "; on the CPU: " + ", ".join(f"{name} ×{count}" for name, count in report["cpu_calls"].items())
    page.text(moved)


def _device(report: Mapping[str, Any], page: Page) -> None:
    """How the dispatches were timed, and whether their sum is the whole."""
    call, count = report["timed_call"], len(report["dispatches"])
    how = (
        "by timestamp queries, each in a pass of its own"
        if report["timestamps"]
        else "by the host, each submitted and waited for, because the device has no timestamp queries: "
        "the way there and back is included"
    )
    page.text(f"\n{count} dispatches, timed {how}; such a call takes {duration(call['seconds'])}", style="bold")
    page.text(
        f"dispatches {duration(call['busy_seconds'])} + between them {duration(call['between_seconds'])} "
        f"= {duration(call['device_seconds'])} on the device"
    )
    parts = ", ".join(f"{name} {duration(took)}" for name, took in call["parts"].items())
    page.text(f"{_percent(call['attributed'])} of that call: {parts}; the rest {duration(call['rest'])}")
    if (peak := report["peak"]) is not None:
        page.text(
            f"at most this device copies {_rate(peak['bytes_per_second'])} GB/s "
            f"and computes {_rate(peak['flops_per_second'])} GFLOP/s (measured, f32)"
        )


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return ""
    rate = per_second / 1e9
    return f"{rate:.3g}" if rate >= 10 else f"{rate:.2f}" if rate >= 0.01 else "<0.01"


def _of_peak(per_second: float | None, peak: Mapping[str, float] | None, name: str) -> str:
    return "" if per_second is None or peak is None else f"{100 * per_second / peak[name]:.0f} %"


def _ops(title: str, rows: Rows, peak: Mapping[str, float] | None, shown: int) -> OutputTable:
    rates = (("GB/s", 4), ("of peak GB/s", 2), ("GFLOP/s", 5), ("of peak GFLOP/s", 3))
    table = _table(title, ("calls", 6), ("time", 0), ("share", 1), *rates)
    for row in rows[:shown]:
        moved, computed = row["bytes_per_second"], row["flops_per_second"]
        table.add(
            row["name"],
            str(row["calls"]),
            duration(row["seconds"]),
            _percent(row["share"]),
            _rate(moved),
            _of_peak(moved, peak, "bytes_per_second"),
            _rate(computed),
            _of_peak(computed, peak, "flops_per_second"),
        )
    _add_rest(table, rows[shown:])
    return table


def _add_rest(table: OutputTable, rows: Rows) -> None:
    if rows:
        took, share = sum(row["seconds"] for row in rows), sum(row["share"] for row in rows)
        calls = str(sum(row["calls"] for row in rows))
        table.add(f"{len(rows)} more (--all)", calls, duration(took), _percent(share))


def _kernels(rows: Rows, shown: int) -> OutputTable:
    table = _table("kernel", ("dispatches", 3), ("time", 0), ("share", 1), ("GB/s", 2))
    for row in rows[:shown]:
        table.add(
            _kernel_name(row["name"]),
            str(row["dispatches"]),
            duration(row["seconds"]),
            _percent(row["share"]),
            _rate(row["bytes_per_second"]),
        )
    _add_rest(table, rows[shown:])
    return table


def _kernel_name(label: str) -> str:
    """A kernel's label without flags that are off: `linear[biased tile=4 type=f32]`."""
    template, _, flags = label.removesuffix("]").partition("[")
    on = [flag for flag in flags.split(",") if flag.rpartition("=")[2] not in ("False", "None", "", "0")]
    return f"{template}[{' '.join(flag.removesuffix('=True') for flag in on)}]" if on else template


def _modules(report: Mapping[str, Any], shown: int) -> OutputTable:
    """Equal blocks in one row; delegates where there are several and no blocks."""
    rows = report["modules"]
    if len(rows) < 2:
        rows = report["origins"]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(re.sub(r"^block \d+ of (\d+)", r"\1 equal blocks", row["name"]), []).append(row)
    table = _table("module", ("calls", 3), ("time", 0), ("share", 1), ("each", 2))
    for name, members in list(groups.items())[:shown]:
        took = sorted(row["seconds"] for row in members)
        each = f"{duration(took[0])} to {duration(took[-1])}" if len(members) > 1 else ""
        table.add(
            name,
            str(sum(row["calls"] for row in members)),
            duration(sum(took)),
            _percent(sum(row["share"] for row in members)),
            each,
        )
    return table
