"""Random JSON schemas, each answered by a language model: `python -m tests.studies schemas MODEL.pte [--count 200]`.

Answers are computed side by side, half of them by the most probable token, half drawn. Every one that finished must be
judged valid by `jsonschema`. Then decoding with and without a constraint is timed in turn, at equal numbers of tokens.
Ends with status 1 if an answer is wrong, or if a constrained token takes more than 1.03 times a free one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from webpte.llm import LLM

from .answers import answer, wrong
from .making import schema
from .timing import ratio

SLOWER = 1.03


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies schemas", description=__doc__)
    parser.add_argument("model", help="a .pte language model with its tokenizer beside it")
    parser.add_argument("--count", type=int, default=200, metavar="N", help="schemas (200)")
    parser.add_argument("--tokens", type=int, default=256, metavar="N", help="of an answer, at most (256)")
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="of timing (6)")
    options = parser.parse_args(arguments)
    with LLM.load(options.model) as llm:
        started = time.perf_counter()
        answers = answer(llm, [schema(seed) for seed in range(options.count)], options.tokens)
        seconds = time.perf_counter() - started
        finished = [result for result in answers if result.finished]
        mistakes = [(result, why) for result in finished if (why := wrong(result)) is not None]
        for result, why in mistakes:
            print(f"WRONG: {why}\n  schema {result.schema}\n  answer {result.text}")
        tokens = sum(result.tokens for result in answers)
        print(
            f"{len(answers)} schemas: {len(finished)} answers finished, {len(finished) - len(mistakes)} of them valid; "
            f"{tokens} tokens in {seconds:.0f} s"
        )
        slower = ratio(llm, options.rounds)
        print(f"a constrained token takes {slower:.3f} times a free one (at most {SLOWER})")
    return int(bool(mistakes) or not finished or slower > SLOWER)


if __name__ == "__main__":
    sys.exit(main())
