"""Run ExecuTorch's op catalog: `python -m tests.studies catalog.run [--ops a,b] [--json]`.

Prints, by suite, how many checks passed, failed or were refused, and why. Ends with status 1 if one failed; a refused
check is one whose program has an op, or a dtype of an op, that webpte does not have.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence

from webpte.device import acquire

from .checks import Result, read_manifest, run_checks
from .source import catalog

WIDTH = 160  # of a reason in the table
OUTCOMES = ("passed", "failed", "refused")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies catalog.run", description=__doc__)
    parser.add_argument("--ops", metavar="A,B", help="only these suites")
    parser.add_argument("--json", action="store_true", help="one object per check instead of a table")
    options = parser.parse_args(arguments)
    checks = read_manifest(catalog())
    if options.ops:
        expected = set(options.ops.split(","))
        if unknown := expected - {check.suite for check in checks}:
            parser.error(f"no suite named {', '.join(sorted(unknown))}")
        checks = [check for check in checks if check.suite in expected]
    gpu = acquire({})  # kept open, so that programs share its pipelines
    try:
        results = list(run_checks(checks))
    finally:
        gpu.release()
    print(as_json(results) if options.json else table(results))
    return 1 if any(result.outcome == "failed" for result in results) else 0


def as_json(results: Sequence[Result]) -> str:
    rows = [{"suite": r.check.suite, "case": r.check.case, "outcome": r.outcome, "reason": r.reason} for r in results]
    return json.dumps(rows, indent=1)


def table(results: Sequence[Result]) -> str:
    suites: dict[str, list[Result]] = {}
    for result in results:
        suites.setdefault(result.check.suite, []).append(result)
    width = max(map(len, ["total", *suites]))
    lines = [f"{'suite':{width}}  passed  failed  refused"]
    for suite, members in sorted(suites.items()):
        lines.append(f"{suite:{width}}{_counts(members)}")
        lines += [f"    {reason}" for reason in _reasons(members)]
    return "\n".join([*lines, f"{'total':{width}}{_counts(results)}"])


def _counts(results: Sequence[Result]) -> str:
    counts = Counter(result.outcome for result in results)
    return "".join(f"  {counts[outcome] or '-':>{len(outcome)}}" for outcome in OUTCOMES)


def _reasons(results: Sequence[Result]) -> list[str]:
    """Return each failure, and each reason for a refusal once; --json has them in full."""
    failed = [f"{r.check.case}: {r.reason}" for r in results if r.outcome == "failed"]
    refused = sorted({f"refused: {r.reason}" for r in results if r.outcome == "refused"})
    return [textwrap.shorten(reason, WIDTH, placeholder=" ...") for reason in failed + refused]


if __name__ == "__main__":
    sys.exit(main())
