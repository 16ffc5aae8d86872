"""Save the plan of every program, run it in another process without reading a graph, and compare bit by bit.

Without arguments: ExecuTorch's op catalog and the programs of our export tier, exported unless they are in the cache.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.harness.workers import Worker
from webpte.device import acquire

from .jobs import Job, of_catalog, of_file, of_programs, of_zoo
from .saving import Outcome, save

MAX_REQUESTS = 40  # plans that one child runs
TIMEOUT = 1200.0  # seconds for a plan


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies saved_plans", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="MODEL.pte", help="only these programs")
    parser.add_argument("--zoo", action="store_true", help="the programs of tests/studies/zoo, too")
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="only programs whose name contains one of these")
    options = parser.parse_args()

    def selected(name: str) -> bool:
        return not options.only or any(text in name for text in options.only)

    sources = [of_catalog, of_programs, *([of_zoo] if options.zoo else [])]
    jobs = map(of_file, options.files) if options.files else itertools.chain(*(source(selected) for source in sources))
    counts: Counter[str] = Counter()
    for outcome in compare(jobs):
        counts[outcome.kind] += 1
        counts["two"] += outcome.shapes > 1
        counts["fixed"] += outcome.fixed
        if outcome.kind != "right":
            print(f"{outcome.name}: {outcome.kind}: {outcome.why[:400]}", flush=True)
    total = counts["right"] + counts["wrong"] + counts["refused"]
    print(
        f"{total} methods: {counts['right']} bit-equal from their saved plans ({counts['two']} at two shapes or more, "
        f"{counts['fixed']} have but one), {counts['wrong']} wrong, {counts['refused']} refused by name before that"
    )
    return 1 if counts["wrong"] or not total else 0


def compare(jobs: Iterable[Job]) -> Iterator[Outcome]:
    gpu = acquire({})  # kept open, so that programs share its pipelines
    worker = Worker("-m", "tests.studies.saved_plans.child", timeout=TIMEOUT, max_requests=MAX_REQUESTS)
    try:
        for job in jobs:
            with tempfile.TemporaryDirectory() as folder:
                yield save(job, Path(folder)) or _run_apart(worker, job, folder)
    finally:
        worker.close()
        gpu.release()


def _run_apart(worker: Worker, job: Job, folder: str) -> Outcome:
    worker.send(folder)
    answer = worker.receive()
    return Outcome(job.name, "wrong", worker.reason()) if answer is None else Outcome(**answer)


if __name__ == "__main__":
    sys.exit(main())
