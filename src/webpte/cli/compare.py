"""Run a method op by op against NumPy references, and end to end: which op is the first to give wrong numbers?"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from ..tools.compare import Tolerance, compare_file
from .output import print_json
from .parsing import check_folder, check_input, real, whole
from .run import INPUTS
from .terminal import Column, OutputTable, Page, bars, open_page

BLOCKS = "▁▂▃▄▅▆▇█"
SHOWN = 8  # calls named of one kind


class _Then(argparse.Action):
    """Begins the inputs of a further call."""

    def __call__(self, parser: object, namespace: argparse.Namespace, values: object, option: object = None) -> None:
        namespace.input = [*namespace.input, []]


class _Input(argparse.Action):
    def __call__(self, parser: object, namespace: argparse.Namespace, values: Any, option: object = None) -> None:
        namespace.input = [*namespace.input[:-1], [*namespace.input[-1], values]]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = INPUTS
    parser.add_argument("file", help="the .pte program, or the folder of a bundle")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--method", default="forward", metavar="NAME", help="the method to run (forward)")
    parser.add_argument(
        "--input",
        action=_Input,
        default=[[]],
        metavar="[NAME=]VALUE",
        help="an input, see below",
    )
    parser.add_argument(
        "--then", action=_Then, nargs=0, help="the inputs that follow are of a further call, which keeps the state"
    )
    parser.add_argument("--seed", type=whole(0), default=0, metavar="N", help="of random inputs (0)")
    parser.add_argument("--state", metavar="FILE", help="start from a state that Method.snapshot wrote")
    parser.add_argument(
        "--against",
        default="reference",
        metavar="WHAT",
        help="reference (the NumPy references), or another .pte file; of a bundle the other variants, or its program",
    )
    parser.add_argument(
        "--no-passes", action="store_true", help="compare calls as the file has them, not joined as they run"
    )
    parser.add_argument("--rtol", type=real(least=0), metavar="R", help="relative tolerance (1e-4, for f16 4e-3)")
    parser.add_argument(
        "--atol", type=real(least=0), metavar="A", help="absolute tolerance (R times an output's typical size)"
    )
    parser.add_argument("--repro", metavar="DIR", help="write the first call at fault as a script and its data")
    parser.add_argument("--calls", action="store_true", help="list every call, not only ops")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")


def run(arguments: argparse.Namespace) -> int:
    check_folder("--repro", arguments.repro)
    check_input("--state", arguments.state)
    check_input("--against", None if arguments.against == "reference" else arguments.against)
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


def _show(report: Mapping[str, Any], page: Page, every_call: bool) -> None:
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
    for title, lines in (("not compared", _skipped(report)), ("not finite", _not_finite(report))):
        if lines:
            page.text(f"\n{title}", style="bold")
            for line in lines:
                page.text(f"  {line}", indent="    ")
    _outside(report, page)
    _verdict(report, page)


def _ops(report: Mapping[str, Any]) -> OutputTable:
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


def _calls(report: Mapping[str, Any]) -> OutputTable:
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
        for found in call["outputs"].values():
            style = "red" if found["outside"] or found["shape"] else ""
            table.add(
                _position(call, report),
                Text(call["op"], style=style),
                _tensor(found),
                Text(_number(found["max_relative"]), style=style),
                _histogram(found["histogram"]),
                call["origin"],
            )
    return table


def _legend(report: Mapping[str, Any]) -> str:
    edges = report["histogram_edges"]
    return (
        "\nErrors are relative to an element's own size plus its output's typical size. The histogram's bins are "
        f"{edges[0]:g}, up to {edges[1]:g}, up to {edges[2]:g} and so on by tens, up to {edges[-1]:g}, and more."
    )


def _histogram(counts: Sequence[int]) -> str:
    """A bar per bin, its height the share of elements; any element at all shows."""
    total = sum(counts) or 1
    return "".join(BLOCKS[min(7, int(8 * count / total))] if count else "·" for count in counts)


def _end_to_end(report: Mapping[str, Any]) -> OutputTable:
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
        found = end["difference"]
        style = "" if found["within"] else "red"
        step = f"call {end['step'] + 1}, " if len(report["inputs"]) > 1 else ""
        share = found["shape"] or (f"{found['outside']} of {found['size']}" if found["outside"] else "")
        table.add(
            f"{step}output {end['output']}",
            _tensor(found),
            end["against"],
            Text(_number(found["max_relative"]), style=style),
            Text(share, style=style),
        )
    return table


def _skipped(report: Mapping[str, Any]) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for call in report["calls"]:
        if call["skipped"] and call["skipped"] != "no tensor is computed":
            reasons.setdefault(call["skipped"], []).append(_name(call))
    return [f"{reason}: {_listed(calls)}" for reason, calls in reasons.items()]


def _not_finite(report: Mapping[str, Any]) -> list[str]:
    """Where NaN and infinities come from, before those that merely pass them on."""
    found = [call for call in report["calls"] if call["not_finite"]]
    born = [call for call in found if call["finite_inputs"]]
    lines = []
    for call in born[:SHOWN]:
        nan, inf = (sum(counts[i] for counts in call["not_finite"].values()) for i in (0, 1))
        wanted = sum(d["wanted_nan"] + d["wanted_inf"] for d in call["outputs"].values())
        agrees = "as the reference does" if wanted == nan + inf else f"the reference has {wanted}"
        lines.append(f"{_position(call, report)} {call['op']} ({call['origin']}) makes {nan} NaN, {inf} inf; {agrees}")
    more = len(found) - len(lines)
    return [*lines, f"{more} calls pass them on"] if more else lines


def _outside(report: Mapping[str, Any], page: Page) -> None:
    calls = [call for call in report["calls"] if call["outside"]]
    if not calls:
        return
    first, *others = calls
    page.text(f"\nfirst out of tolerance: {_name(first)}", style="bold red")
    lines = [found["text"] for found in first["outputs"].values() if not found["within"]]
    if others:
        counts = Counter(call["op"] for call in others)
        lines.append("then " + ", ".join(f"{op} ×{count}" for op, count in counts.items()))
    if report["repro"]:
        lines.append(f"repro: python {report['repro'][0]}")
    for line in lines:
        page.text(f"  {line}", indent="    ")


def _verdict(report: Mapping[str, Any], page: Page) -> None:
    compared = [call for call in report["calls"] if call["outputs"]]
    outside = sum(call["outside"] for call in compared)
    ends = [end for end in report["end_to_end"] if not end["difference"]["within"]]
    problems = [f"{outside} of {len(compared)} calls are out of tolerance"] if outside else []
    problems += [f"{len(ends)} of {len(report['end_to_end'])} end-to-end comparisons too"] if ends else []
    problems += ["there are NaN"] if any(n for c in report["calls"] for n, _ in c["not_finite"].values()) else []
    if problems:
        page.text("\n" + ", ".join(problems), style="bold red")
    else:
        calls = f"all {len(compared)} calls and " if compared else ""
        page.text(f"\n{calls}all outputs are within tolerance", style="bold green")


def _position(call: Mapping[str, Any], report: Mapping[str, Any]) -> str:
    step = f"{call['step'] + 1}:" if len(report["inputs"]) > 1 else ""
    return f"{step}{call['index']}"


def _name(call: Mapping[str, Any]) -> str:
    return f"{call['op']} ({call['origin']})"


def _tensor(found: Mapping[str, Any]) -> str:
    return f"{found['dtype']}[{', '.join(map(str, found['dims']))}]"


def _number(value: Any) -> str:
    """Three digits; what is not finite comes as text."""
    return value if isinstance(value, str) else f"{value:.3g}"


def _listed(items: Sequence[str]) -> str:
    more = f", and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
