"""Save the plan of every program, run it in another process without reading a graph, and compare bit by bit.

Without arguments: ExecuTorch's op catalog and the programs of our export tier, exported unless they are in the cache.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.support.harness.children import SRC
from webpte.device import acquire

from .jobs import Job, of_catalog, of_file, of_programs, of_zoo
from .saving import Outcome, save

BATCH = 40  # plans that one child runs
SECONDS = 1200  # for which it may


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.saved_plans", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="MODEL.pte", help="only these programs")
    parser.add_argument("--zoo", action="store_true", help="the programs of tests/zoo, too")
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
    try:
        left = iter(jobs)
        while batch := list(itertools.islice(left, BATCH)):
            with tempfile.TemporaryDirectory() as folder:
                yield from _compare(batch, Path(folder))
    finally:
        gpu.release()


def _compare(batch: list[Job], root: Path) -> Iterator[Outcome]:
    saved: list[Path] = []
    for number, job in enumerate(batch):
        folder = root / str(number)
        folder.mkdir()
        refused = save(job, folder)
        if refused is not None:
            yield refused
        else:
            saved.append(folder)
    yield from run_children(saved)


def run_children(folders: list[Path]) -> list[Outcome]:
    """Return what one child says of all of them; of those that it did not come to, one child each."""
    if not folders:
        return []
    printed, trouble = _child(folders)
    outcomes = [Outcome(**json.loads(line)) for line in printed]
    left = folders[len(outcomes) :]
    if not left:
        return outcomes
    if len(folders) == 1:
        name = json.loads((folders[0] / "job.json").read_text())["name"]
        return [Outcome(name, "wrong", f"its process ended: {trouble}")]
    return [*outcomes, *(outcome for folder in left for outcome in run_children([folder]))]


def _child(folders: list[Path]) -> tuple[list[str], str]:
    command = [sys.executable, "-m", "tests.saved_plans.child", *map(str, folders)]
    environment = os.environ | {"PYTHONPATH": str(SRC)}
    try:
        child = subprocess.run(
            command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=SRC.parent, env=environment
        )
    except subprocess.TimeoutExpired as error:
        return (error.stdout or b"").decode().splitlines(), f"after {SECONDS} seconds"
    return child.stdout.splitlines(), f"{child.returncode}: {child.stderr[-400:]}"


if __name__ == "__main__":
    sys.exit(main())
