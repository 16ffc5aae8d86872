"""Trace the memory accesses of a program's kernels: `python -m bench.trace PROGRAM.pte`; see `bench.trace`."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import webpte
from webpte.debug.inputs import make_inputs

from .analyse import Figures, by_site, by_variable
from .run import MAX_RECORDS, TracedCall, device_for_traces, trace_call

COLUMNS = (
    f"{'':34}{'accesses':>9}{'requested':>11}{'unique':>9}{'active':>7}{'share 32':>9}{'64':>6}{'segments':>9}"
    f"{'degree':>7}{'conflicts':>10}{'rereads':>8}{'cached':>7}{'across':>7}"
)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse(arguments)
    with device_for_traces(), webpte.load(options.program) as program:
        method = program.method(options.method)
        specs = options.input or []
        for spec in specs[:-1]:
            method.run([value.value for value in make_inputs(method.inputs, spec, max_dim=options.max_dim)])
        inputs = make_inputs(method.inputs, specs[-1] if specs else (), max_dim=options.max_dim)
        call = trace_call(
            method,
            [value.value for value in inputs],
            kernel=options.kernel,
            workgroups=options.workgroups,
            max_records=options.records,
        )
        adapter = method.adapter
    if options.json:
        print(json.dumps(report(call, adapter), indent=1))
    else:
        show(call, adapter, options.sites)
    return 1 if call.failures else 0


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.trace", description="Trace memory accesses of kernels.")
    parser.add_argument("program", type=Path)
    parser.add_argument("--method", default="forward")
    parser.add_argument(
        "--input",
        nargs="+",
        action="append",
        metavar="SPEC",
        help="inputs of a call, as for `webpte run`; of several calls, the last is traced",
    )
    parser.add_argument("--max-dim", type=int, default=32, help="size of dynamic dims of inputs without a spec (32)")
    parser.add_argument("--kernel", default="", metavar="NAME", help="trace only kernels whose label contains NAME")
    parser.add_argument("--workgroups", type=int, default=4, metavar="N", help="record the first N workgroups (4)")
    parser.add_argument("--records", type=int, default=MAX_RECORDS, help="largest number of records of a kernel")
    parser.add_argument("--sites", action="store_true", help="also list every access site")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    return parser.parse_args(arguments)


def report(call: TracedCall, adapter: str) -> dict[str, Any]:
    """Return all figures as data for JSON."""
    kernels = {
        label: {
            "dispatches": call.dispatches[label],
            "variables": [asdict(figures) for figures in by_variable(trace)],
            "sites": [asdict(figures) for figures in by_site(trace)],
        }
        for label, trace in call.traces.items()
    }
    return {"adapter": adapter, "kernels": kernels, "failures": call.failures}


def show(call: TracedCall, adapter: str, sites: bool) -> None:
    """Print a table for each kernel."""
    print(f"on {adapter}; share and conflicts of subgroups of 32 unless 64 is named")
    for label, trace in call.traces.items():
        print(f"\n{label} ({call.dispatches[label]} dispatches)\n{COLUMNS}")
        for figures in by_variable(trace):
            print(row(figures, f"{figures.variable} {figures.direction}"))
            if sites:
                for site in by_site(trace):
                    if (site.variable, site.direction) == (figures.variable, figures.direction):
                        print(row(site, f"  {site.site}"))
    for label, reason in call.failures.items():
        print(f"\n{label}: not traced: {reason}")


def row(figures: Figures, name: str) -> str:
    narrow, wide = figures.by_subgroup[32], figures.by_subgroup[64]
    banks, segments = f"{'':17}", f"{'':24}"
    if figures.space == "workgroup":
        banks = f"{narrow.degree:>7}{narrow.conflicts:>10.2f}"
    else:
        segments = f"{narrow.share:>9.0%}{wide.share:>6.0%}{narrow.segments:>9.2f}"
    return (
        f"{name[:33]:34}{figures.accesses:>9}{figures.requested:>11}{figures.unique:>9}{narrow.active:>7.0%}{segments}{banks}"
        f"{figures.rereads:>8.1f}{figures.cached:>7.1f}{figures.across:>7.1f}"
    )


if __name__ == "__main__":
    sys.exit(main())
