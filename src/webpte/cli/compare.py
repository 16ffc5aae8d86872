"""Find the first op with wrong numbers: compare a method op by op with NumPy references, and end to end."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from ..debug.compare import EXECUTORCH, Tolerance, compare_file
from ..debug.compare.reports import CallData, CompareReport, DifferenceReport
from ..text import plural
from .output import print_json
from .parsing import AT_THE_BOUND, add_call, add_json, add_program, check_folder, check_input, number
from .terminal import Column, OutputTable, Page, bars, open_page

BLOCKS = "▁▂▃▄▅▆▇█"
MAX_CALLS = 8  # named in one line


class _NextCall(argparse.Action):
    """Start the inputs of another call."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, option: object = None) -> None:
        namespace.input = [*namespace.input, []]


class _AppendInput(argparse.Action):
    """Append an input to those of the last call."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: object = None) -> None:
        namespace.input = [*namespace.input[:-1], [*namespace.input[-1], values]]


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser, bundle=True)
    parser.set_defaults(downloads=("file", "against"))
    add_call(parser, AT_THE_BOUND, _AppendInput)
    parser.add_argument(
        "--then", action=_NextCall, nargs=0, help="start the inputs of another call, which keeps the state"
    )
    parser.add_argument("--state", metavar="FILE", help="start from a state written by Method.snapshot")
    parser.add_argument(
        "--against",
        default="reference",
        metavar="WHAT",
        help="compare with: reference (NumPy), executorch (its wheel, on the CPU) or another .pte file; for a bundle, "
        "its variants or its program",
    )
    parser.add_argument("--no-passes", action="store_true", help="compare the calls of the file, without fusion")
    parser.add_argument("--rtol", type=number(minimum=0), metavar="R", help="relative tolerance (1e-4; 4e-3 for f16)")
    parser.add_argument(
        "--atol", type=number(minimum=0), metavar="A", help="absolute tolerance (R times an output's typical size)"
    )
    parser.add_argument("--repro", metavar="DIR", help="write the first failing call as a script and its data")
    parser.add_argument("--calls", action="store_true", help="list every call, not only ops")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    check_folder("--repro", arguments.repro)
    check_input("--state", arguments.state)
    check_input("--against", None if arguments.against in ("reference", EXECUTORCH) else arguments.against)
    with bars() as progress:
        report = compare_file(
            arguments.file,
            arguments.data,
            method=arguments.method,
            inputs=arguments.input,
            seed=arguments.seed,
            against=None if arguments.against == "reference" else arguments.against,
            tolerance=Tolerance(arguments.rtol, arguments.atol),
            state=arguments.state,
            joined=not arguments.no_passes,
            repro=arguments.repro,
            progress=progress,
        )
    if arguments.json:
        print_json(report)
    else:
        _show(report, open_page(), arguments.calls)
    return 0 if report["ok"] else 1


def _show(report: CompareReport, page: Page, every_call: bool) -> None:
    page.text(f"{report['file']}, {report['method']}", style="bold")
    page.text(f"on {report['adapter']}")
    for step, sources in enumerate(report["inputs"]):
        prefix = f"call {step + 1} of the method: " if len(report["inputs"]) > 1 else ""
        page.text(prefix + ", ".join(f"input {i} {source}" for i, source in enumerate(sources)))
    if report["calls"]:
        page.table(_ops(report))
        if names := [f"{op['op']} ×{op['calls']}" for op in report["ops"] if op["max_relative"] == 0]:
            page.text(f"\nexact: {', '.join(names)}")
        if every_call:
            page.table(_calls(report))
        page.text(_legend(report), style="dim")
    page.table(_end_to_end(report))
    failed = [f"{_position(call, report)} {call['failed']}" for call in report["calls"] if call["failed"]]
    sections = {"not compared": _skipped(report), "reference failed": failed, "not finite": _not_finite(report)}
    for title, lines in sections.items():
        if lines:
            page.text(f"\n{title}", style="bold")
            for line in lines:
                page.text(f"  {line}", indent="    ")
    _outside(report, page)
    _verdict(report, page)


def _ops(report: CompareReport) -> OutputTable:
    table = OutputTable(
        (
            Column("op"),
            Column("calls", 3, number=True),
            Column("outside", 1, number=True),
            Column("worst", number=True),
            Column("error histogram", 2),
            Column("worst call", 4),
        )
    )
    for op in report["ops"]:
        if op["max_relative"] == 0:
            continue
        bad = "red" if op["outside"] else ""
        outside = str(op["outside"]) if op["outside"] else ""
        table.add(
            Text(op["op"], style=bad),
            str(op["calls"]),
            Text(outside, style=bad),
            Text(_number(op["max_relative"]), style=bad),
            _histogram(op["histogram"]),
            op["worst"],
        )
    return table


def _calls(report: CompareReport) -> OutputTable:
    table = OutputTable(
        (
            Column("call"),
            Column("op"),
            Column("output", 2),
            Column("worst", number=True),
            Column("error histogram", 1),
            Column("where", 3),
        )
    )
    for call in report["calls"]:
        for output in call["outputs"].values():
            style = "red" if output["outside"] or output["shape"] else ""
            table.add(
                _position(call, report),
                Text(call["op"], style=style),
                _tensor(output),
                Text(_number(output["max_relative"]), style=style),
                _histogram(output["histogram"]),
                call["origin"],
            )
    return table


def _legend(report: CompareReport) -> str:
    edges = report["histogram_edges"]
    return (
        "\nErrors are relative to the magnitude of an element plus the typical magnitude of its output. "
        f"The bins of a histogram are {edges[0]:g}, up to {edges[1]:g}, up to {edges[2]:g} and so on by tens, "
        f"up to {edges[-1]:g}, and more."
    )


def _histogram(counts: Sequence[int]) -> str:
    """Return a bar per bin. Its height is the share of elements; a bin with any element has a bar."""
    total = sum(counts) or 1
    return "".join(BLOCKS[min(7, int(8 * count / total))] if count else "·" for count in counts)


def _end_to_end(report: CompareReport) -> OutputTable:
    table = OutputTable(
        (
            Column("end to end"),
            Column("output", 1),
            Column("against"),
            Column("worst", number=True),
            Column("outside", number=True),
        )
    )
    for end in report["end_to_end"]:
        difference = end["difference"]
        style = "" if difference["within"] else "red"
        step = f"call {end['step'] + 1}, " if len(report["inputs"]) > 1 else ""
        share = f"{difference['outside']} of {difference['size']}" if difference["outside"] else ""
        table.add(
            f"{step}output {end['output']}",
            _tensor(difference),
            end["against"],
            Text(_number(difference["max_relative"]), style=style),
            Text(difference["shape"] or share, style=style),
        )
    return table


def _skipped(report: CompareReport) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for call in report["calls"]:
        if call["skipped"] and call["skipped"] != "no tensor is computed":
            reasons.setdefault(call["skipped"], []).append(_name(call))
    return [f"{reason}: {_listed(calls)}" for reason, calls in reasons.items()]


def _not_finite(report: CompareReport) -> list[str]:
    """Return a line for each call that creates NaN or infinities, and the number of calls that propagate them."""
    calls = [call for call in report["calls"] if call["not_finite"]]
    origins = [call for call in calls if call["finite_inputs"]]
    lines = []
    for call in origins[:MAX_CALLS]:
        nan, inf = (sum(counts[i] for counts in call["not_finite"].values()) for i in (0, 1))
        expected = sum(d["wanted_nan"] + d["wanted_inf"] for d in call["outputs"].values())
        reference = "the same as the reference" if expected == nan + inf else f"the reference has {expected}"
        lines.append(
            f"{_position(call, report)} {call['op']} ({call['origin']}) creates {nan} NaN, {inf} inf; {reference}"
        )
    more = len(calls) - len(lines)
    return [*lines, f"propagated by {plural(more, 'call')}"] if more else lines


def _outside(report: CompareReport, page: Page) -> None:
    calls = [call for call in report["calls"] if call["outside"]]
    if not calls:
        return
    first, *others = calls
    page.text(f"\nfirst out of tolerance: {_name(first)}", style="bold red")
    lines = [output["text"] for output in first["outputs"].values() if not output["within"]]
    if others:
        counts = Counter(call["op"] for call in others)
        lines.append("then " + ", ".join(f"{op} ×{count}" for op, count in counts.items()))
    if report["repro"]:
        lines.append(f"repro: python {report['repro'][0]}")
    for line in lines:
        page.text(f"  {line}", indent="    ")


def _verdict(report: CompareReport, page: Page) -> None:
    compared = [call for call in report["calls"] if call["outputs"]]
    outside = sum(call["outside"] for call in compared)
    ends = [end for end in report["end_to_end"] if not end["difference"]["within"]]
    problems = [f"{outside} of {plural(len(compared), 'call')} out of tolerance"] if outside else []
    total = plural(len(report["end_to_end"]), "end-to-end comparison")
    problems += [f"{len(ends)} of {total} out of tolerance"] if ends else []
    failed = sum(call["failed"] is not None for call in report["calls"])
    problems += [f"{plural(failed, 'reference')} failed"] if failed else []
    problems += ["NaN in the results"] if any(n for c in report["calls"] for n, _ in c["not_finite"].values()) else []
    if problems:
        page.text("\n" + ", ".join(problems), style="bold red")
    else:
        calls = f"{plural(len(compared), 'call')} and " if compared else ""
        page.text(f"\n{calls}all outputs are within tolerance", style="bold green")


def _position(call: CallData, report: CompareReport) -> str:
    step = f"{call['step'] + 1}:" if len(report["inputs"]) > 1 else ""
    return f"{step}{call['index']}"


def _name(call: CallData) -> str:
    return f"{call['op']} ({call['origin']})"


def _tensor(output: DifferenceReport) -> str:
    return f"{output['dtype']}[{', '.join(map(str, output['dims']))}]"


def _number(value: Any) -> str:
    """Return a number with three digits. Numbers that are not finite are strings already."""
    return value if isinstance(value, str) else f"{value:.3g}"


def _listed(items: Sequence[str]) -> str:
    more = f", and {len(items) - MAX_CALLS} more" if len(items) > MAX_CALLS else ""
    return ", ".join(items[:MAX_CALLS]) + more
