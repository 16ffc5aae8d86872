"""`python -m tests.studies fuzz TARGET [--runs N] [--seconds S] [--corpus FOLDER]`: feed a target with atheris.

Prints how many executions were made. A finding is kept as `crash-*` or `timeout-*` in the corpus' folder and ends the
run; `python -m tests.studies fuzz TARGET --again FILE` gives it to the target once more.

`python -m tests.studies fuzz TARGET --random N [--seed S]` needs no atheris: it changes the target's first inputs at
random. It fails for an untyped error and for an execution that takes more than a second of CPU time.

`python -m tests.studies fuzz files [KIND ...] [--count N] [--seed S]` needs no atheris: it changes checkpoints,
tokenizers,
listings of a hub and bundles, and reads each in a process that may die. `--first NUMBER --count 1` runs one again.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.studies.fuzz.targets import Target

CHOICE_BYTES = 16  # inputs up to this length are not files: they choose what a target changes


MAX_SECONDS = 1.0  # of CPU time


def run_random(target: Target, count: int, seed: int) -> int:
    """Run a target with random inputs; return 1 after the first finding."""
    from tests.studies.fuzz.changes import changed_bytes

    random, seeds, slowest = Random(seed), target.seeds(), 0.0
    for number in range(count):
        first = random.choice(seeds)
        data = changed_bytes(first, random, len(first)) if target.longest > CHOICE_BYTES else random.randbytes(8)
        started = time.process_time()
        try:
            target(data)
        except Exception:
            print(f"execution {number}: {data.hex()}", flush=True)
            raise
        slowest = max(slowest, time.process_time() - started)
        if slowest > MAX_SECONDS:
            print(f"execution {number} took {slowest:.1f} s: {data.hex()}", flush=True)
            return 1
        if number % 10_000 == 9_999:
            print(f"{number + 1} executions, the slowest took {slowest:.3f} s", flush=True)
    print(f"{count} executions with seed {seed}, the slowest took {slowest:.3f} s", flush=True)
    return 0


def main() -> None:
    if sys.argv[1:2] == ["leaves"]:
        from tests.studies.fuzz.leaves import main as run_leaves

        raise SystemExit(run_leaves(sys.argv[2:]))
    if sys.argv[1:2] == ["files"]:
        from tests.studies.fuzz.files import main as run_files

        sys.exit(run_files(sys.argv[2:]))
    if any(word.startswith("--random") for word in sys.argv):
        atheris: Any = None
        from tests.studies.fuzz.targets import TARGETS
    else:
        atheris = import_module("atheris")
        with atheris.instrument_imports(include=["webpte"]):
            from tests.studies.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.studies fuzz")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=-1, help="executions; without end unless given")
    parser.add_argument("--seconds", type=int, default=0, help="time to spend; without end unless given")
    parser.add_argument(
        "--corpus", type=Path, help="where interesting inputs are kept; beside the system's temporary files"
    )
    parser.add_argument("--again", type=Path, help="run one input and stop")
    parser.add_argument("--random", type=int, help="executions with inputs changed at random, without atheris")
    parser.add_argument("--seed", type=int, default=0, help="of --random (0)")
    args = parser.parse_args()
    target = TARGETS[args.target]
    if args.random is not None:
        sys.exit(run_random(target, args.random, args.seed))
    if args.again is not None:
        target(args.again.read_bytes())
        return
    corpus = args.corpus or Path(f"/tmp/webpte-fuzz-{args.target}")
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    options = [
        f"-runs={args.runs}",
        f"-max_total_time={args.seconds}",
        f"-max_len={target.longest}",
        f"-artifact_prefix={corpus}/",
        "-timeout=20",  # wall time on a busy machine; the target itself counts calls
        "-rss_limit_mb=512",
        "-print_final_stats=1",
    ]
    atheris.Setup([sys.argv[0], *options, str(corpus)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
