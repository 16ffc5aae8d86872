"""A language model's answers with and without drafts: `python -m tests.studies speculation MODEL.pte`.

The tokens of 50 prompts must be equal, for the top token and for drawn ones. Then rewriting a text and writing
prose are timed, with and without in turn. Ends with status 1 if a token differs, if rewriting is not 1.4 times faster,
or if prose is slower than 0.97 times.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence

from webpte.llm import LLM

from .prompts import PROSE, REWRITES, fifty
from .timing import faster, prompt

REWRITING, WRITING = 1.4, 0.97


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies speculation", description=__doc__)
    parser.add_argument("model", help="a .pte language model with its tokenizer beside it")
    parser.add_argument("--tokens", type=int, default=48, metavar="N", help="of each of the 50 answers (48)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of timing (3)")
    options = parser.parse_args(arguments)
    with LLM.load(options.model) as llm:
        different = compare(llm, fifty(), options.tokens)
        rewriting = faster(llm, REWRITES, options.rounds)
        print("rewriting is", " ".join(f"{result:.2f}" for result in rewriting), "times as fast", flush=True)
        writing = [*faster(llm, PROSE, options.rounds), *faster(llm, PROSE, options.rounds, temperature=0.8, seed=3)]
        print("prose is", " ".join(f"{result:.2f}" for result in writing), "times as fast")
    print(f"medians {statistics.median(rewriting):.2f} and {statistics.median(writing):.2f}")
    return int(different > 0 or statistics.median(rewriting) < REWRITING or min(writing) < WRITING)


def compare(llm: LLM, questions: Sequence[str], count: int) -> int:
    """Return how many answers differ between drafts and no drafts. They are computed in one batch."""
    drawn = {"temperature": 0.9, "top_p": 0.95}
    asked = [{"prompt": prompt(llm, q), **(drawn if at % 2 else {}), "seed": at} for at, q in enumerate(questions)]
    plain, drafting = (
        list(llm.generate_many(asked, max_new_tokens=count, speculate=how, in_order=True)) for how in (False, True)
    )
    different = [(one, two) for one, two in zip(plain, drafting, strict=True) if one.tokens != two.tokens]
    for one, two in different:
        print(f"DIFFERENT:\n  {one.text!r}\n  {two.text!r}")
    equal = len(questions) - len(different)
    print(
        f"{len(questions)} prompts, every other one drawn: {equal} have the same tokens with and without drafts",
        flush=True,
    )
    return len(different)


if __name__ == "__main__":
    sys.exit(main())
