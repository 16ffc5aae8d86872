"""Print the contents of a .pte file: methods, inputs, outputs, delegates, calls, constants. Or draw a method."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from ..bundles.site import summary
from ..debug.inspect import ConstantReport, DelegateReport, Execution, MethodContents, inspect_file
from ..errors import InputError
from ..llm.defaults import describe_defaults
from ..partial_files import not_writable
from ..runtime.manifest import is_bundle
from ..text import plural, size
from .bundle import show
from .output import print_json, say
from .parsing import add_json, add_program, check_output
from .terminal import Column, OutputTable, Page, open_page

MAX_CONSTANTS = 12  # listed
MAX_USERS = 8  # values listed for a constant


def configure(parser: argparse.ArgumentParser) -> None:
    add_program(parser, bundle=True)
    add_json(parser)
    parser.add_argument("--html", metavar="OUT", help="write an HTML page: graph, memory timeline, constants")
    parser.add_argument("--dot", metavar="OUT", help="write the graph for Graphviz")
    parser.add_argument("--method", metavar="NAME", help="the method for --html and --dot (forward)")
    parser.add_argument("--kernel", metavar="NAME", help="print the WGSL of a kernel, with the template of each line")


def run(arguments: argparse.Namespace) -> None:
    if arguments.kernel is not None:
        _show_kernel(arguments)
        return
    if arguments.html or arguments.dot:
        check_output("--html", arguments.html)
        check_output("--dot", arguments.dot)
        _draw(arguments)
        return
    if is_bundle(arguments.file):
        show(summary(arguments.file), arguments.json)
        return
    report = inspect_file(arguments.file, arguments.data)
    sampling = report["sampling_defaults"]
    if arguments.json:
        print_json(report)
        return
    page = open_page()
    methods = plural(len(report["methods"]), "method")
    page.text(f"{report['file']}  {size(report['bytes'])}, {methods}", style="bold")
    if sampling is not None:
        page.text(f"sampling defaults: {describe_defaults(sampling)}")
    table = OutputTable((Column("constant method"), Column("returns", prose=True)))
    for method in report["methods"]:
        if method["returns"] is None:
            _method(method, page)
        else:
            table.add(method["name"], ", ".join(map(str, method["returns"])))
    if table.rows:
        page.table(table)


def _show_kernel(arguments: argparse.Namespace) -> None:
    from ..debug.kernel_text import kernel_text

    others = {"--json": arguments.json, "--html": arguments.html, "--dot": arguments.dot}
    if outputs := [option for option, value in others.items() if value]:
        raise InputError(
            argument="--kernel",
            expected="no other output",
            got=", ".join(outputs),
            hint="Run webpte inspect once for each.",
            code="exclusive",
        )
    say(kernel_text(arguments.file, arguments.kernel, arguments.data), end="")


def _draw(arguments: argparse.Namespace) -> None:
    from ..debug.report import render_page, report_data
    from ..debug.report.page import to_dot

    report = report_data(arguments.file, arguments.data, arguments.method)
    for path, render in ((arguments.html, render_page), (arguments.dot, to_dot)):
        if path:
            text = render(report)
            _write(path, text)
            say(f"{path}: {plural(len(report['calls']), 'call')} of {report['method']}, {size(len(text))}")
    if report["problem"]:
        say(f"The method cannot be planned, so its memory is not shown: {report['problem']}")


def _write(path: str, text: str) -> None:
    try:
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError as error:
        raise not_writable(path, error) from error


def _method(method: MethodContents, page: Page) -> None:
    page.text(f"\n{method['name']}", style="bold")
    columns = (Column("argument"), Column("name", drop=1), Column("type and bound"), Column("varies in", drop=2))
    arguments = OutputTable(columns)
    for role in ("inputs", "outputs"):
        for number, argument in enumerate(method[role]):
            dims = [str(d) for d, may in enumerate(argument["dynamic"] or ()) if may]
            arguments.add(
                f"{role[:-1]} {number}", argument["name"], argument["text"], f"dim {', '.join(dims)}" if dims else ""
            )
    page.table(arguments)
    if method["problem"]:
        page.text(f"\n{method['problem']}", style="red")
    elif method["execution"] is not None:
        page.text(_execution(method["execution"], method))
    if method["delegates"]:
        page.table(_delegates(method["delegates"]))
    for title, counts in (
        ("calls in delegates", method["calls"]),
        ("calls outside delegates", method["kernel_calls"]),
    ):
        _counts(title, counts, page)
    _constants(method["constants"], page)
    _counts("values by kind", method["values"], page)


def _execution(execution: Execution, method: MethodContents) -> str:
    memory = execution["memory"]
    in_file = sum(method["calls"].values()) + sum(method["kernel_calls"].values())
    text = (
        f"\n{plural(execution['calls'], 'call')}, {in_file} in the file; "
        f"runs in {plural(execution['submits'], 'submit')}, "
        f"{size(execution['bytes_to_host_between'])} to the host in between; "
        f"GPU memory: constants {size(memory['constant'])}, state {size(memory['state'])}, "
        f"activations {size(memory['activation'])}"
    )
    if execution["cpu_calls"]:
        listed = ", ".join(f"{name} x{count}" for name, count in execution["cpu_calls"].items())
        text += f"\non the CPU: {listed}"
    return text


def _delegates(delegates: list[DelegateReport]) -> OutputTable:
    """Return a table of delegates. Of other backends, only name and size are known."""
    table = OutputTable(
        (
            Column("delegate"),
            Column("backend"),
            Column("bytes", drop=3, number=True),
            Column("calls", number=True),
            Column("values", drop=4, number=True),
            Column("constants", drop=2),
            Column("takes", drop=1, prose=True),
            Column("gives", drop=1, prose=True),
            Column("options", drop=5, prose=True),
        )
    )
    for d in delegates:
        options = ", ".join(f"{k}={v}" for k, v in d["options"].items())
        counts = ("", "", "")
        if d["known"]:
            counts = (str(d["calls"]), str(d["values"]), f"{d['constants']} ({size(d['constant_bytes'] or 0)})")
        borders = (", ".join(d["takes"]), ", ".join(d["gives"]))
        table.add(str(d["number"]), d["backend"], size(d["bytes"]), *counts, *borders, options)
    return table


def _counts(title: str, counts: Mapping[str, int], page: Page) -> None:
    if counts:
        table = OutputTable((Column(title), Column("", number=True)))
        for name, count in counts.items():
            table.add(name, str(count))
        page.table(table)


def _constants(constants: list[ConstantReport], page: Page) -> None:
    if not constants:
        return
    total = sum(c["bytes"] for c in constants)
    page.text(f"\n{plural(len(constants), 'distinct constant')}, {size(total)}", style="bold")
    table = OutputTable(
        (Column("constant"), Column("bytes", number=True), Column("used by", prose=True), Column("name", drop=1))
    )
    for entry in constants[:MAX_CONSTANTS]:
        shape = f"{entry['dtype']}[{', '.join(map(str, entry['dims']))}]"
        more = len(entry["values"]) - MAX_USERS
        values = ", ".join(f"%{v}" for v in entry["values"][:MAX_USERS]) + (f" and {more} more" if more > 0 else "")
        table.add(shape, size(entry["bytes"]), values, entry["name"])
    page.table(table)
    if len(constants) > MAX_CONSTANTS:
        page.text(f"and {len(constants) - MAX_CONSTANTS} more (--json lists all)", style="dim")
