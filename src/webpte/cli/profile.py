"""Measure where the time of a call goes: on the host by activity, on the device by op, kernel and module."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence

from ..debug.profile import profile_file
from ..debug.profile.profile import DispatchGroup, PeakRates, ProfileReport
from ..text import duration, plural, size
from .output import print_json
from .parsing import AT_THE_BOUND, add_call, add_fallback, add_json, add_program, check_output, integer
from .terminal import Column, OutputTable, Page, bars, open_page

MAX_ROWS = 12  # of a table without --all
Rows = Sequence[DispatchGroup]


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser)
    add_call(parser, AT_THE_BOUND)
    parser.add_argument(
        "--repeat", type=integer(1), default=5, metavar="N", help="calls to measure; the fastest is reported (5)"
    )
    parser.add_argument("--trace", metavar="JSON", help="write a Chrome trace of the call, for ui.perfetto.dev")
    parser.add_argument("--all", action="store_true", help=f"list every row of a table, not only the first {MAX_ROWS}")
    parser.add_argument(
        "--no-roofline", action="store_true", help="do not measure the peak bandwidth and arithmetic of the device"
    )
    add_fallback(parser)
    add_json(parser, "print the report as JSON, with every dispatch")


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
            roofline=not arguments.no_roofline,
            trace=arguments.trace,
            fallback=arguments.fallback,
            progress=progress,
        )
    if arguments.json:
        print_json(report)
        return
    max_rows = len(report["dispatches"]) if arguments.all else MAX_ROWS
    page = open_page()
    page.text(f"{report['file']}, {report['method']}", style="bold")
    page.text(f"on {report['adapter']}")
    page.text(", ".join(f"input {i} {source}" for i, source in enumerate(report["inputs"])))
    _host(report, page)
    if report["dispatches"]:
        _device(report, page)
        page.table(_ops("op", report["ops"], report["peak"], max_rows))
        page.table(_kernels(report["kernels"], max_rows))
        page.table(_modules(report, max_rows))
    if report["trace"]:
        page.text(f"\nwrote the timed call to {report['trace']}: open it in ui.perfetto.dev")


def _table(first: str, *numbers: tuple[str, int]) -> OutputTable:
    """Return a table with a text column and number columns; each has a title and its drop order."""
    return OutputTable((Column(first), *(Column(title, drop, number=True) for title, drop in numbers)))


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _host(report: ProfileReport, page: Page) -> None:
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
    transfers = (
        f"\n{plural(report['submits'], 'submit')}; "
        f"{size(report['bytes_to_device'])} to the device, {size(report['bytes_to_host'])} back"
    )
    if report["cpu_calls"]:
        transfers += "; on the CPU: " + ", ".join(f"{name} ×{count}" for name, count in report["cpu_calls"].items())
    page.text(transfers)


def _device(report: ProfileReport, page: Page) -> None:
    """Print how the dispatches were timed, and how their sum compares with the whole call."""
    call, count = report["timed_call"], len(report["dispatches"])
    how = (
        "by timestamp queries, each in a pass of its own"
        if report["timestamps"]
        else "by the host, each with a submit and a wait of its own, because the device has no timestamp queries: "
        "the round trip is included"
    )
    page.text(
        f"\n{plural(count, 'dispatch')}, timed {how}; such a call takes {duration(call['seconds'])}", style="bold"
    )
    page.text(
        f"dispatches {duration(call['busy_seconds'])} + between them {duration(call['between_seconds'])} "
        f"= {duration(call['device_seconds'])} on the device"
    )
    parts = ", ".join(f"{name} {duration(seconds)}" for name, seconds in call["parts"].items() if seconds)
    page.text(f"the host spent {_percent(call['attributed'])} of that call on: {parts}; rest {duration(call['rest'])}")
    if (peak := report["peak"]) is not None:
        page.text(
            f"peak of this device: {_rate(peak['bytes_per_second'])} GB/s of copies, "
            f"{_rate(peak['flops_per_second'])} GFLOP/s of f32 arithmetic (measured)"
        )


def _rate(per_second: float | None) -> str:
    if per_second is None:
        return ""
    rate = per_second / 1e9
    return f"{rate:.3g}" if rate >= 10 else f"{rate:.2f}" if rate >= 0.01 else "<0.01"


def _rates(per_second: float | None, peak: float | None) -> tuple[str, str]:
    """Return the cells of a rate: itself, and its share of the device's peak."""
    share = "" if per_second is None or peak is None else f"{100 * per_second / peak:.0f} %"
    return _rate(per_second), share


def _ops(title: str, rows: Rows, peak: PeakRates | None, max_rows: int) -> OutputTable:
    rates = (("GB/s", 4), ("of peak GB/s", 2), ("GFLOP/s", 5), ("of peak GFLOP/s", 3))
    table = _table(title, ("calls", 6), ("time", 0), ("share", 1), *rates)
    for row in rows[:max_rows]:
        bandwidth = _rates(row["bytes_per_second"], peak and peak["bytes_per_second"])
        arithmetic = _rates(row["flops_per_second"], peak and peak["flops_per_second"])
        calls = str(row["calls"])
        table.add(row["name"], calls, duration(row["seconds"]), _percent(row["share"]), *bandwidth, *arithmetic)
    _add_rest(table, rows[max_rows:])
    return table


def _add_rest(table: OutputTable, rows: Rows) -> None:
    if rows:
        seconds, share = sum(row["seconds"] for row in rows), sum(row["share"] for row in rows)
        calls = str(sum(row["calls"] for row in rows))
        table.add(f"{len(rows)} more (--all)", calls, duration(seconds), _percent(share))


def _kernels(rows: Rows, max_rows: int) -> OutputTable:
    table = _table("kernel", ("dispatches", 3), ("time", 0), ("share", 1), ("GB/s", 2))
    for row in rows[:max_rows]:
        table.add(
            _kernel_name(row["name"]),
            str(row["dispatches"]),
            duration(row["seconds"]),
            _percent(row["share"]),
            _rate(row["bytes_per_second"]),
        )
    _add_rest(table, rows[max_rows:])
    return table


def _kernel_name(label: str) -> str:
    """Return a kernel's label without flags that are off: `linear[biased tile=4 type=f32]`."""
    template, _, flags = label.removesuffix("]").partition("[")
    enabled = [flag for flag in flags.split(",") if flag.rpartition("=")[2] not in ("False", "None", "", "0")]
    return f"{template}[{' '.join(flag.removesuffix('=True') for flag in enabled)}]" if enabled else template


def _modules(report: ProfileReport, max_rows: int) -> OutputTable:
    """Return a table of modules, with equal blocks in one row; of delegates if there are no blocks."""
    rows = report["modules"]
    if len(rows) < 2:
        rows = report["origins"]
    groups: dict[str, list[DispatchGroup]] = {}
    for row in rows:
        groups.setdefault(re.sub(r"^block \d+ of (\d+)", r"\1 equal blocks", row["name"]), []).append(row)
    table = _table("module", ("calls", 3), ("time", 0), ("share", 1), ("each", 2))
    for name, members in list(groups.items())[:max_rows]:
        seconds = sorted(row["seconds"] for row in members)
        each = f"{duration(seconds[0])} to {duration(seconds[-1])}" if len(members) > 1 else ""
        table.add(
            name,
            str(sum(row["calls"] for row in members)),
            duration(sum(seconds)),
            _percent(sum(row["share"] for row in members)),
            each,
        )
    return table
