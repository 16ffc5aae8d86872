"""`python -m tests.fuzz TARGET [--runs N] [--seconds S] [--corpus FOLDER]`: feed a target with atheris.

Prints how many executions were made. A finding is kept as `crash-*` or `timeout-*` in the corpus' folder and ends the
run; `python -m tests.fuzz TARGET --again FILE` gives it to the target once more.

`python -m tests.fuzz files [KIND ...] [--count N] [--seed S]` needs no atheris: it changes checkpoints, tokenizers,
listings of a hub and bundles, and reads each in a process that may die. `--first NUMBER --count 1` runs one again.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from pathlib import Path


def main() -> None:
    if sys.argv[1:2] == ["files"]:
        from tests.fuzz.files import main as run_files

        sys.exit(run_files(sys.argv[2:]))
    import atheris

    with atheris.instrument_imports(include=["webpte"]):
        from tests.fuzz.targets import TARGETS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--runs", type=int, default=-1, help="executions; without end unless given")
    parser.add_argument("--seconds", type=int, default=0, help="time to spend; without end unless given")
    parser.add_argument(
        "--corpus", type=Path, help="where interesting inputs are kept; beside the system's temporary files"
    )
    parser.add_argument("--again", type=Path, help="run one input and stop")
    args = parser.parse_args()
    target = TARGETS[args.target]
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
