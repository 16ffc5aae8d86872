"""Report the adapters, features and limits of this machine, and test them. The exit code is 1 if the test fails.

With --bug-report, write a file to attach to an issue.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.text import Text

from ..debug.bug_report import write_bug_report
from ..debug.doctor import AdapterReport, DoctorReport, FeatureReport, LimitReport, VariantReport, bug_report, examine
from ..debug.selftest import SelfTestReport
from ..errors import InputError
from ..text import duration, size
from .output import print_json, say
from .parsing import add_json, check_input, check_output
from .terminal import Column, OutputTable, Page, open_page

BUG_REPORT = """\
--bug-report writes a .zip file: this report, the environment variables of webpte and of drivers, and the log of a
self-test; for a program its inspect and check reports, but not its weights. It contains no user names, and paths begin
with ~ instead of the home folder. Nothing is sent.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = BUG_REPORT
    parser.add_argument("file", nargs="?", help="with --bug-report: the .pte program that fails")
    parser.add_argument("--no-test", action="store_true", help="skip the self-test, which computes on the device")
    parser.add_argument("--bug-report", action="store_true", help="write a file to attach to an issue")
    parser.add_argument("-o", "--output", metavar="ZIP", help="name of that file (webpte-bug-report.zip)")
    add_json(parser)
    parser.set_defaults(downloads=("file",))


def run(arguments: argparse.Namespace) -> int:
    if not arguments.bug_report and (named := [name for name in ("file", "output") if getattr(arguments, name)]):
        got = getattr(arguments, named[0])
        raise InputError(argument=named[0], expected="none without --bug-report", got=got, code="not_applicable")
    output = arguments.output or "webpte-bug-report.zip"
    if arguments.bug_report:
        check_output("--output", output, (".zip",))
        check_input("file", arguments.file)
    report = examine(self_test=not arguments.no_test)
    if arguments.bug_report:
        write_bug_report(output, report, arguments.file, log=not arguments.no_test)
        say(f"written: {output}. Look at its contents before you attach it to an issue.", error=True)
    if arguments.json:
        print_json(report)
    else:
        _show(report, open_page())
    return 0 if report["ok"] else 1


def _show(report: DoctorReport, page: Page) -> None:
    if report["adapters"]:
        page.table(_adapters(report["adapters"]))
        page.text(
            "* is the adapter that programs run on; WEBPTE_ADAPTER=N selects another by its number, "
            "WEBPTE_BACKEND=vulkan, metal, d3d12 or opengl by its backend",
            style="dim",
        )
    else:
        page.text("no WebGPU adapter found", style="bold red")
    if report["features"]:
        page.table(_features(report["features"]))
        page.table(_limits(report["limits"]))
    if report["variants"]:
        page.table(_variants(report["variants"]))
        page.text("webpte tune FILE measures them for the shapes of a program", style="dim")
    if report["self_test"] is not None:
        page.table(_self_test(report["self_test"]))
    if report["remedies"]:
        page.text("\nadvice", style="bold")
        page.bullets(report["remedies"])
    page.text("\nfor a bug report", style="bold")
    page.text(bug_report(report))
    verdict = "this machine can run programs" if report["ok"] else "this machine cannot run programs"
    page.text(f"\n{verdict}", style="bold green" if report["ok"] else "bold red")


def _adapters(adapters: Sequence[AdapterReport]) -> OutputTable:
    columns = (Column("adapter"), Column("device"), Column("backend"), Column("kind", 1), Column("driver", 2))
    table = OutputTable(columns)
    for adapter in adapters:
        style = "" if adapter["chosen"] else "dim"
        number = f"{adapter['number']}{'*' * adapter['chosen']}"
        table.add(number, adapter["device"], adapter["backend"], adapter["kind"], adapter["driver"], style=style)
    return table


def _features(features: Sequence[FeatureReport]) -> OutputTable:
    table = OutputTable((Column("feature"), Column("available"), Column("effect", prose=True)))
    for feature in features:
        table.add(feature["name"], "yes" if feature["offered"] else "no", feature["effect"])
    return table


def _limits(limits: Sequence[LimitReport]) -> OutputTable:
    table = OutputTable(
        (
            Column("limit"),
            Column("here", number=True),
            Column("browser", 1, number=True),
            Column("effect", 2, prose=True),
        )
    )
    for limit in limits:
        text = size if limit["name"].endswith("-size") else str
        table.add(limit["name"], text(limit["offered"]), text(limit["browser"]), limit["decides"])
    return table


def _variants(variants: Sequence[VariantReport]) -> OutputTable:
    table = OutputTable(
        (
            Column("kernels for"),
            Column("shape"),
            Column("chosen"),
            Column("reason", 1, prose=True),
            Column("alternatives", 2, prose=True),
        )
    )
    for v in variants:
        table.add(v["family"], v["shape"], v["chosen"], v["why"], ", ".join(v["others"]))
    return table


def _self_test(test: SelfTestReport) -> OutputTable:
    table = OutputTable((Column("self-test"), Column("result"), Column("", prose=True)))
    if test["problem"] is not None:
        table.add("did not finish", Text("failed", style="bold red"), test["problem"])
    for check in test["checks"]:
        table.add(
            check["name"],
            Text("ok" if check["ok"] else "failed", style="" if check["ok"] else "bold red"),
            check["detail"],
        )
    if test["ok"]:
        trip, copies = test["round_trip"], test["copy_bytes_per_second"]
        assert trip is not None and copies is not None, "a self-test that ends well measures both"
        table.add(
            "round trip of one dispatch",
            duration(trip["median"]),
            f"median of {trip['calls']}; min {duration(trip['min'])}",
        )
        table.add("copy on the device", f"{size(copies)}/s")
    return table
