"""Export a tiny checkpoint of every family in f32 and in 4 bits, run both, and compare them with eager PyTorch."""

from __future__ import annotations

import argparse
import sys

from tests.support.models.families import first, tinies

from .measuring import TOLERANCE, measured
from .page import Errors, known, write


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.families", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="FAMILY", choices=list(tinies()), help="files in families/")
    parser.add_argument("--write", action="store_true", help="put what was measured into the table of docs/models.md")
    options = parser.parse_args()
    errors: dict[str, Errors] = {}
    wrong: list[str] = []
    for name in options.only or tinies():
        found = [measured(first(name), quantize).error() for quantize in (None, "4w")]
        errors[name] = Errors(*found)
        wrong += [name] * any(error > TOLERANCE for error in found)
        print(f"{name}: f32 {found[0]:.1e}, 4w {found[1]:.1e}", flush=True)
    if options.write:
        write({**known(), **errors})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
