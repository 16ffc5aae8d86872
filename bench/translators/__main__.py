"""Translate kernels as wgpu does on Metal and Direct3D 12, and compile the results. Nothing is executed.

    python -m bench.translators model.pte                  # a program, with and without f16 and subgroups
    python -m bench.translators llama256 --target hlsl-fxc # a name of `bench.compilers`
    python -m bench.translators --all --json               # all op cases and all programs of `bench.compilers`
    python -m bench.translators --wgsl kernel.wgsl         # one file of WGSL, with an entry point `main`
    python -m bench.translators --record                   # renew the record that the gate compares with

The first run installs what it needs into the cache folder (`bench.translators.build`). Results are cached, so that an
interrupted run continues. The command ends with status 1 if a kernel is rejected.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.compilers.programs import PROGRAMS
from bench.debian import BuildError

from . import build, kernels, record, targets
from .kernels import Source, Sources
from .targets import SLOW, TARGETS, Result, TranslatorError

SLOWEST = 10  # rows

Results = Mapping[tuple[Source, str], Result]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.translators", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"a .pte file, or {', '.join(PROGRAMS)}")
    parser.add_argument("--all", action="store_true", help="all op cases and programs")
    parser.add_argument("--wgsl", type=Path, nargs="+", metavar="FILE", help="files of WGSL")
    parser.add_argument("--target", nargs="+", choices=TARGETS, default=list(TARGETS), help="all if it is not set")
    parser.add_argument("--json", action="store_true", help="print all results as JSON")
    parser.add_argument("--record", action="store_true", help="renew bench/translators/accepted.json, for all targets")
    options = parser.parse_args()
    if not (options.programs or options.all or options.wgsl or options.record):
        parser.error(f"PROGRAM: expected a .pte file or a name, got none. The names are {', '.join(PROGRAMS)}.")
    try:
        build.build()
        sources = _sources(options)
        results = _results(sources, options)
    except (BuildError, TranslatorError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    rejected = list(targets.failures(results))
    print(json.dumps(as_json(sources, results), indent=1) if options.json else report(sources, results))
    return int(bool(rejected))


def _sources(options: argparse.Namespace) -> Sources:
    if options.record:
        return kernels.of_programs(kernels.GATE)
    if options.wgsl:
        return kernels.of_files(options.wgsl)
    return kernels.everything() if options.all else kernels.of_programs(options.programs)


def _results(sources: Sources, options: argparse.Namespace) -> Results:
    if options.record:  # only what the record lacks is translated
        return record.renew(sources, lambda new: targets.translate(new, list(TARGETS), _progress))
    return targets.translate(sources, options.target, _progress)


def _progress(done: int, total: int) -> None:
    print(f"{done} of {total}", file=sys.stderr, flush=True)


def as_json(sources: Sources, results: Results) -> dict[str, Any]:
    """Return the versions, and one entry for each kernel and target."""
    entries = [
        {
            "kernel": source.label,
            "sha256": hashlib.sha256(source.text.encode()).hexdigest(),
            "workgroup": source.workgroup,
            "features": sources[source],
            "target": target,
            "ok": not result.error,
            "error": result.error,
            "milliseconds": result.milliseconds,
            "bytes": result.bytes,
            "text_bytes": result.text_bytes,
        }
        for (source, target), result in results.items()
    ]
    failures = [entry for entry in entries if not entry["ok"]]
    return {"versions": dict(build.versions()), "kernels": len(sources), "failures": len(failures), "results": entries}


def report(sources: Sources, results: Results) -> str:
    """Return a table of targets, the rejected kernels and the slowest ones."""
    lines = [f"{len(sources)} kernels", ""]
    lines += [
        "| target | kernels | rejected | seconds | over 5 s | slowest, s | bytes |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    for target in dict.fromkeys(target for _, target in results):
        lines.append(_row(target, [result for (_, name), result in results.items() if name == target]))
    if rejected := list(targets.failures(results)):
        lines += ["", "rejected:", *(f"  {target}  {source.label}: {error}" for source, target, error in rejected)]
    slow = sorted(
        (pair for pair in results if results[pair].milliseconds > SLOW), key=lambda p: -results[p].milliseconds
    )
    if slow:
        lines += ["", "slowest:"]
        lines += [
            f"  {results[pair].milliseconds / 1000:6.1f} s  {pair[1]}  {pair[0].label}" for pair in slow[:SLOWEST]
        ]
    return "\n".join(lines)


def _row(target: str, results: Sequence[Result]) -> str:
    times = [result.milliseconds for result in results]
    figures = (
        len(results),
        sum(bool(result.error) for result in results),
        f"{sum(times) / 1000:.0f}",
        sum(time > SLOW for time in times),
        f"{max(times) / 1000:.1f}",
        sum(result.bytes or result.text_bytes for result in results),
    )
    return f"| {target} | {' | '.join(map(str, figures))} |"


if __name__ == "__main__":
    sys.exit(main())
