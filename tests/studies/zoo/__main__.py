"""Export the programs or the networks of the zoo, run them, compare them with eager PyTorch.

What is known from an earlier run is not done again: exports until a program or the exporter changes, runs until webpte
does.  Interrupt it at any time; the next run continues from there.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from . import network_page, page
from .index import Program, networks, programs
from .outcome import Kind, Outcome, recall, remember
from .pool import judge_all

BAD = (Kind.WRONG, Kind.CRASHED)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies zoo", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="programs or their files; networks or modes")
    parser.add_argument("--networks", action="store_true", help="the networks of networks/ in every mode instead")
    parser.add_argument("--jobs", type=int, default=1, help="processes; exports take turns anyway")
    parser.add_argument("--again", action="store_true", help="run what has been run, too")
    parser.add_argument("--write", action="store_true", help="write the CSV file and the counts of docs/zoo.md")
    options = parser.parse_args()
    if options.write and options.only and not options.networks:
        parser.error("--write is for a run of all programs")
    known = networks() if options.networks else programs()
    if unknown := set(options.only or ()) - {word for p in known.values() for word in p.words}:
        parser.error(f"no program or family named {', '.join(sorted(unknown))}")
    chosen = [p for p in known.values() if options.only is None or not set(options.only).isdisjoint(p.words)]
    try:
        outcomes = run(chosen, options.jobs, options.again)
    except KeyboardInterrupt:
        print("interrupted: what is done is kept", file=sys.stderr)
        return 130
    print(counted(outcomes))
    if options.write:
        (network_page if options.networks else page).write(outcomes)
    return 1 if any(o.kind in BAD for o in outcomes.values()) else 0


def run(chosen: list[Program], jobs: int, again: bool) -> dict[str, Outcome]:
    known = {} if again else {p.name: result for p in chosen if (result := recall(p)) is not None}
    left = [p for p in chosen if p.name not in known]
    for outcome in known.values():
        if outcome.kind is not Kind.RIGHT:
            print(shown(outcome))
    print(f"{len(known)} known, {len(left)} to run", flush=True)
    done = dict(known)

    def report(one: Program, outcome: Outcome, seconds: float) -> None:
        remember(one, outcome)
        done[one.name] = outcome
        print(f"[{len(done)}/{len(chosen)}] {shown(outcome)} ({seconds:.1f} s)", flush=True)

    judge_all(left, jobs, report)
    return {p.name: done[p.name] for p in chosen}


def shown(outcome: Outcome) -> str:
    text = f"{outcome.error:.1e}" if outcome.kind is Kind.RIGHT else outcome.why
    return f"{outcome.name}: {outcome.kind}, {text}"


def counted(outcomes: dict[str, Outcome]) -> str:
    counts = Counter(o.kind for o in outcomes.values())
    return f"{len(outcomes)} programs: " + ", ".join(f"{counts[kind]} {kind}" for kind in Kind)


if __name__ == "__main__":
    sys.exit(main())
