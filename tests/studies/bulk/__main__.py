"""Proofs of `webpte batch` that take long.

python -m tests.studies bulk hand                      # one process against the same batches by hand
python -m tests.studies bulk embed                     # one process and two actors: equal rows, padding, rates
python -m tests.studies bulk names                     # what a run costs that finds everything
python -m tests.studies bulk crossover                 # the whole command by one process and by two actors, a device
each python -m tests.studies bulk shared                    # the same where both actors have one device
python -m tests.studies bulk actors                    # SIGKILL to actors in mid-run
python -m tests.studies bulk driver                    # SIGKILL to the driver at random moments
python -m tests.studies bulk within                    # SIGKILL or SIGINT within a block: finished rows are kept
python -m tests.studies bulk generate MODEL.pte        # many rows at once against one at a time, judged by a schema

With `--tiny` the encoder is a small one of random weights, which takes seconds where MiniLM takes minutes.
With `--folder` results are kept, and an interrupted proof continues. The figures are printed as JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from .answers import SCHEMAS, generate
from .kills import actors, driver, within
from .rates import crossover, embed, hand, names, shared


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.studies bulk", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="for tables and what is made of them (a temporary one)")
    commands = parser.add_subparsers(dest="proof", required=True)
    for proof, rows, block in ((hand, 1024, 1024), (embed, 20000, 1024), (actors, 4000, 100), (driver, 4000, 100)):
        one = commands.add_parser(proof.__name__, description=proof.__doc__)
        one.add_argument("--rows", type=int, default=rows)
        one.add_argument("--block", type=int, default=block)
        one.add_argument("--tiny", action="store_true", help="a small encoder of random weights")
        one.set_defaults(prove=proof)
    commands.choices["hand"].add_argument("--turns", type=int, default=3)
    commands.choices["actors"].add_argument("--kills", type=int, default=5)
    drivers = commands.choices["driver"]
    drivers.add_argument("--kills", type=int, default=10)
    drivers.add_argument("--actors", type=int, help="of Ray, which the command then has (none)")
    drivers.add_argument("--seed", type=int, default=0)
    drivers.add_argument("--within", type=float, default=2.0, help="seconds behind a block, at most, to kill at")
    blocks = commands.add_parser("within", description=within.__doc__)
    blocks.add_argument("--rows", type=int, default=60)
    blocks.add_argument("--tokens", type=int, default=12, help="of an answer, at most")
    blocks.add_argument("--kills", type=int, default=20)
    blocks.add_argument("--signal", choices=("KILL", "INT"), default="KILL")
    blocks.add_argument("--seed", type=int, default=0)
    blocks.set_defaults(prove=within)
    for compare, sizes in ((crossover, [256, 1024]), (shared, [1024])):
        one = commands.add_parser(compare.__name__, description=compare.__doc__)
        one.add_argument("--sizes", type=int, nargs="+", default=sizes, help="rows")
        one.add_argument("--block", type=int, default=128)
        one.add_argument("--tiny", action="store_true", help="a small encoder of random weights")
        one.set_defaults(prove=compare)
    named = commands.add_parser("names", description=names.__doc__)
    named.add_argument("--rows", type=int, default=16384)
    named.add_argument("--bytes", type=int, default=1000, help="of a row's text")
    named.add_argument("--turns", type=int, default=5)
    named.set_defaults(prove=names)
    answers = commands.add_parser("generate", description=generate.__doc__)
    answers.add_argument("model", type=Path)
    answers.add_argument("--rows", type=int, default=200)
    answers.add_argument("--schema", choices=SCHEMAS, default="text")
    answers.add_argument("--parts", type=int, default=2)
    answers.add_argument("--alone", type=int, default=5, help="rows of each part to answer one at a time")
    answers.set_defaults(prove=generate)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        figures = options.prove(options.folder or Path(temporary), options)
    if figures:
        print(json.dumps(figures, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
