"""The whole sweep: `python -m tests.studies special [--configuration swiftshader] [--write] [OP ...]`.

Every case of every op (or of those whose name contains an OP) with every planting; many minutes. Ends with status 1 if
a difference stands not in tests/studies/special/documented.py, or something there did not differ. `--write` only puts
the list into docs/files/special-values.csv.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.studies.special.documented import csv_table, documented, undocumented_and_unused
from tests.studies.special.values import PLANTINGS
from tests.support.harness.configurations import CONFIGURATIONS

DATA = Path(__file__).parents[3] / "docs" / "files" / "special-values.csv"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies special", description=__doc__)
    parser.add_argument("--configuration", choices=sorted(CONFIGURATIONS), default="usual")
    parser.add_argument("--write", action="store_true", help="write docs/files/special-values.csv, and run nothing")
    parser.add_argument("ops", nargs="*", metavar="OP")
    options = parser.parse_args(arguments)
    if options.write:
        DATA.write_text(csv_table(), encoding="utf-8")
        return 0
    CONFIGURATIONS[options.configuration].apply()  # before wgpu is imported
    return _sweep(options.ops)


def _sweep(ops: Sequence[str]) -> int:
    from tests.studies.special.sweep import every_case, sweep

    cases = [case for case in every_case() if not ops or any(name in case.op for name in ops)]
    results = set()
    for difference in sweep(cases, PLANTINGS):
        key = (difference.op, difference.value, difference.kind)
        if key not in results and not documented(*key):
            print(f"{difference.dtype}, {difference.value}, {difference.kind}: {difference.example}", flush=True)
        results.add(key)
    surprising, unused = undocumented_and_unused(results)
    if ops:
        unused = set()
    names = {case.op for case in cases}
    print(
        f"{len(PLANTINGS) * len(cases)} runs of {len(cases)} cases of {len(names)} ops: {len(surprising)} differences"
    )
    print("\n".join(f"did not differ: {line}" for line in sorted(unused)))
    return 1 if surprising or unused else 0


if __name__ == "__main__":
    sys.exit(main())
