"""Print what a .pte file holds: methods, inputs and outputs, delegates, calls, constants, values; or draw a method."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..bundles.summary import summary
from ..errors import InputError
from ..runtime.manifest import is_bundle
from ..tools.inspect import inspect_file
from ..tools.text import size
from .bundle import show
from .say import say
from .terminal import open_console

CONSTANTS_SHOWN = 12


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", help="the .pte program, or the folder of a bundle")
    parser.add_argument("--data", action="append", default=[], metavar="PTD", help="a .ptd file with its constants")
    parser.add_argument("--json", action="store_true", help="print the same as JSON")
    parser.add_argument("--html", metavar="OUT", help="write one page instead: graph, memory timeline, constants")
    parser.add_argument("--dot", metavar="OUT", help="write the graph for Graphviz instead")
    parser.add_argument("--method", metavar="NAME", help="the method that --html and --dot show (forward)")


def run(arguments: argparse.Namespace) -> None:
    if arguments.html or arguments.dot:
        _draw(arguments)
        return
    if is_bundle(arguments.file):
        show(summary(arguments.file), arguments.json)
        return
    report = inspect_file(arguments.file, arguments.data)
    if arguments.json:
        print(json.dumps(report, indent=2))
        return
    console = open_console(soft_wrap=False)
    console.print(Text(f"{report['file']}  {size(report['bytes'])}, {len(report['methods'])} methods", style="bold"))
    constants = [m for m in report["methods"] if "returns" in m]
    for method in report["methods"]:
        if method not in constants:
            console.print(_method(method))
    if constants:
        table = Table("constant method", "returns", box=None, title_justify="left")
        for method in constants:
            table.add_row(method["name"], ", ".join(map(str, method["returns"] or [])))
        console.print(Padding(table, (1, 0, 0, 0)))


def _draw(arguments: argparse.Namespace) -> None:
    from ..tools.dot import to_dot
    from ..tools.report import render_page, report_data

    report = report_data(arguments.file, arguments.data, arguments.method)
    for path, render in ((arguments.html, render_page), (arguments.dot, to_dot)):
        if path:
            text = render(report)
            _write(path, text)
            say(f"{path}: {len(report['calls'])} calls of {report['method']}, {size(len(text))}")
    if report["problem"]:
        say(f"There is no plan, so no memory is shown: {report['problem']}")


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from error


def _method(method: Mapping[str, Any]) -> RenderableType:
    parts: list[RenderableType] = [Text(f"\n{method['name']}", style="bold")]
    arguments = Table("", "type and bound", "varies in", box=None)
    for role in ("inputs", "outputs"):
        for number, argument in enumerate(method[role]):
            dims = [str(d) for d, may in enumerate(argument["dynamic"] or ()) if may]
            arguments.add_row(f"{role[:-1]} {number}", argument["text"], f"dim {', '.join(dims)}" if dims else "")
    parts.append(arguments)
    if method["problem"]:
        parts.append(Text(f"\n{method['problem']}", style="red"))
    else:
        parts.append(_execution(method["execution"]))
    parts.append(_delegates(method["delegates"]))
    parts.append(_counts("calls in delegates", method["calls"]))
    parts.append(_counts("calls outside delegates", method["kernel_calls"]))
    parts.append(_constants(method["constants"]))
    parts.append(_counts("values by kind", method["values"]))
    return Group(*parts)


def _execution(execution: Mapping[str, Any]) -> Text:
    memory = execution["memory"]
    text = (
        f"\nruns in {execution['submits']} submit{'s' * (execution['submits'] != 1)}, "
        f"{size(execution['bytes_to_host_between'])} to the host in between; "
        f"GPU memory: constants {size(memory['constant'])}, state {size(memory['state'])}, "
        f"activations {size(memory['activation'])}"
    )
    if execution["cpu_calls"]:
        listed = ", ".join(f"{name} x{count}" for name, count in execution["cpu_calls"].items())
        text += f"\non the CPU: {listed}"
    return Text(text)


def _delegates(delegates: list[Mapping[str, Any]]) -> RenderableType:
    table = Table("\ndelegate", "\nbackend", "\ncalls", "\nvalues", "\nconstants", "\noptions", box=None)
    for number, d in enumerate(delegates):
        options = ", ".join(f"{k}={v}" for k, v in d["options"].items())
        held = f"{d['constants']} ({size(d['constant_bytes'])})"
        table.add_row(str(number), d["backend"], str(d["calls"]), str(d["values"]), held, options)
    return table


def _counts(title: str, counts: Mapping[str, int]) -> RenderableType:
    if not counts:
        return Text()
    table = Table(f"\n{title}", "\n", box=None)
    for name, count in counts.items():
        table.add_row(name, str(count))
    return table


def _constants(constants: list[Mapping[str, Any]]) -> RenderableType:
    if not constants:
        return Text()
    total = sum(c["bytes"] for c in constants)
    table = Table(f"\nconstants: {len(constants)} distinct, {size(total)}", "\nbytes", "\nused by", box=None)
    for entry in constants[:CONSTANTS_SHOWN]:
        shape = f"{entry['dtype']}[{', '.join(map(str, entry['dims']))}]"
        values = ", ".join(f"%{v}" for v in entry["values"][:4])
        table.add_row(f"{shape}  {entry['name'][:16]}", size(entry["bytes"]), values)
    if len(constants) > CONSTANTS_SHOWN:
        table.add_row(f"and {len(constants) - CONSTANTS_SHOWN} more (--json lists all)")
    return table
