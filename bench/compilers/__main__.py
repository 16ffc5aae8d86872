"""Compile the kernels of programs with real GPU compilers, without a GPU.

    python -m bench.compilers llama256                     # on all devices whose compilers are here
    python -m bench.compilers model.pte --device navi31 vega10
    python -m bench.compilers --wgsl kernel.wgsl           # one file of WGSL, with an entry point `main`
    python -m bench.compilers --all --write                # all programs and devices; writes results and page
    python -m bench.compilers llama256 --device m1 --write # keeps the stored figures of other devices
    python -m bench.compilers --all --check                # fails if a report differs from the stored one
    python -m bench.compilers llama256 --stored            # prints the stored report; compiles nothing
    python -m bench.compilers --all --stored --csv         # the same as a table for spreadsheets and SQL
    python -m bench.compilers --record                     # writes budgets.json, which the gate compares with

A cell has registers, occupancy and instructions of a kernel, its spills if there are any, and for matrix kernels the
instructions of the innermost loop for one multiply-add. Occupancy is: subgroups per SIMD on AMD, invocations per
instruction on Intel, threads of a core on Apple, subgroups of a multiprocessor on NVIDIA; on Mali 2 if a core holds
all its threads, else 1. Registers of Apple have 16 bits, and its instructions with checks of bounds are in
parentheses. A phase has dispatches x workgroups.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from bench.debian import BuildError

from . import build
from .drivers import DEVICES, CompilerError, Device, Source, compile_all, missing
from .programs import PROGRAMS
from .report import csv_table, differences, from_json, measure, merged, result_path, text_table, to_json


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.compilers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"a .pte file, or {', '.join(PROGRAMS)}")
    parser.add_argument("--device", nargs="+", choices=DEVICES, metavar="DEVICE", help=", ".join(DEVICES))
    parser.add_argument("--json", action="store_true", help="print the whole report")
    parser.add_argument("--write", action="store_true", help="store the reports, and write the page of the documents")
    parser.add_argument("--all", action="store_true", help="all programs and devices; builds the drivers it needs")
    parser.add_argument("--stored", action="store_true", help="print the stored reports, and compile nothing")
    parser.add_argument("--csv", action="store_true", help="with --stored: a row per kernel, phase and device")
    parser.add_argument("--check", action="store_true", help="fail if a report differs from the stored one")
    parser.add_argument("--record", action="store_true", help="write the budgets of the gate")
    parser.add_argument("--wgsl", type=Path, help="compile one file of WGSL, and print all figures")
    options = parser.parse_args()
    names = list(PROGRAMS) if options.all else options.programs
    if not names and options.wgsl is None and not options.record:
        parser.error(f"PROGRAM: expected a .pte file or a name, got none. The names are {', '.join(PROGRAMS)}.")
    if options.csv and not options.stored:
        parser.error("--csv: expected with --stored, got it alone.")
    try:
        if options.stored:
            _print_stored(names, options)
            return 0
        return _run(options, names)
    except (BuildError, CompilerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _print_stored(names: list[str], options: argparse.Namespace) -> None:
    reports = [from_json(result_path(name).read_text(encoding="utf-8")) for name in names]
    if options.csv:
        print(csv_table(reports), end="")
        return
    for report in reports:
        print(to_json(report) if options.json else f"{report.program}\n{text_table(report)}\n")


def _run(options: argparse.Namespace, names: list[str]) -> int:
    if options.all:
        for target in build.NAMES:
            build.build(target)
    devices = _devices(options.device)
    if options.wgsl is not None:
        source = Source(options.wgsl.read_text(encoding="utf-8"))
        print(json.dumps({device.name: compile_all(device, [source])[0] for device in devices}, indent=1))
        return 0
    if options.record:
        from . import budgets

        budgets.record()
        return 0
    different = []
    for name in names:
        report = measure(name, devices)
        if options.check:
            changed, others = differences(report, from_json(result_path(name).read_text(encoding="utf-8")))
            different += [f"{name} on {device}" for device in changed]
            if others:
                print(f"{name}: not compared, because Mesa has another version: {', '.join(others)}", file=sys.stderr)
        print(to_json(report) if options.json else f"{name}\n{text_table(report)}\n", flush=True)
        if options.write:
            path = result_path(name)
            if not options.all and path.exists():
                report = merged(report, from_json(path.read_text(encoding="utf-8")))
            path.parent.mkdir(exist_ok=True)
            path.write_text(to_json(report), encoding="utf-8")
    if options.write:
        from docs import make_compilers

        make_compilers.main()
    if different:
        print(f"not as stored: {', '.join(different)}. If this is meant: python -m bench.compilers --all --write")
    return int(bool(different))


def _devices(names: list[str] | None) -> list[Device]:
    """Return the devices of these names, or all whose compilers are here; the others are named on stderr."""
    if names:
        return [DEVICES[name] for name in names]
    here = []
    for device in DEVICES.values():
        if (reason := missing(device)) is None:
            here.append(device)
        else:
            print(f"{device.name}: {reason}", file=sys.stderr)
    return here


if __name__ == "__main__":
    sys.exit(main())
