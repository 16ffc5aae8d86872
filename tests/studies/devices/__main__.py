"""Run suites on configurations of devices: `python -m tests.studies devices [--configurations A,B] [--suites C,D]
[--write]`.

Ends with status 1 if a test failed. `--write` puts the results into docs/devices.md, beside those it has.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

from tests.support.harness.configurations import CONFIGURATIONS

from .page import merged, read_results, write
from .runs import SUITES, Result, describe, run, suites


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies devices", description=__doc__)
    parser.add_argument("--configurations", type=_names(CONFIGURATIONS), default=list(CONFIGURATIONS), metavar="A,B")
    parser.add_argument("--suites", type=_names(SUITES), default=list(SUITES), metavar="A,B")
    parser.add_argument("--jobs", type=int, default=1, help="how many to run at a time (1)")
    parser.add_argument("--write", action="store_true", help="write docs/devices.md")
    options = parser.parse_args(arguments)
    if absent := [f"{name}: {why}" for name in options.configurations if (why := CONFIGURATIONS[name].missing)]:
        parser.error("; ".join(absent))
    pairs = [(n, suite) for suite in options.suites for n in options.configurations if suite in suites(n)]
    failed = 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for done in as_completed([pool.submit(run, *pair) for pair in pairs]):
            _tell(done.result())
            failed += done.result().counts["failed"]
            if options.write:  # each as it comes: all of them take long
                device = describe(done.result().configuration)
                write(merged(read_results(), device, done.result().as_json()))
    return 1 if failed else 0


def _tell(result: Result) -> None:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in result.counts.items())
    print(f"{result.configuration}, {result.suite}: {counts} in {result.seconds} s", flush=True)
    for reason, count in result.reasons.items():
        print(f"    {count} x {reason}", flush=True)


def _names(known: Collection[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())
