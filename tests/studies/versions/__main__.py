"""Export programs with released versions of ExecuTorch, run them here and compare them with eager PyTorch."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from .page import PROGRAMS, known, record, write
from .releases import RELEASES, environment, export, folder
from .running import Kind, outcome


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies versions", description=__doc__)
    parser.add_argument(
        "--version", nargs="+", choices=list(RELEASES), default=list(RELEASES), help="the releases (all)"
    )
    parser.add_argument(
        "--environments", type=Path, default=folder(), help="the folder of their environments (%(default)s)"
    )
    parser.add_argument(
        "--discard", action="store_true", help="remove each environment after its exports: they take 5 GB"
    )
    parser.add_argument(
        "--programs", type=Path, help="keep the programs here, and run those of a release that are there"
    )
    parser.add_argument(
        "--write", action="store_true", help="record the results, and write the table in docs/models.md"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        results = known()
        bad = 0
        for version in options.version:
            programs = (options.programs or Path(temporary)) / version
            if not programs.exists():
                home = environment(version, options.environments)
                if home is None:
                    print(f"{version}: not tried, no Python up to {RELEASES[version].newest_python} found", flush=True)
                    continue
                programs.parent.mkdir(parents=True, exist_ok=True)
                export(home, programs)
                if options.discard:
                    shutil.rmtree(home)
            results[version] = {name: outcome(programs / name) for name in PROGRAMS}
            for name, result in results[version].items():
                error = "" if result.error is None else f" {result.error:.1e}"
                print(f"{version} {name}: {result.kind}{error} {result.reason}".rstrip(), flush=True)
            bad += sum(result.kind in (Kind.REFUSED, Kind.WRONG) for result in results[version].values())
    if options.write:
        record(results)
        write(known())
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
