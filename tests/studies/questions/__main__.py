"""Ask language models 40 questions with known answers: `python -m tests.studies questions REFERENCE.pte [PROGRAM.pte]`.

Each is asked by itself through the model's chat template, and the most probable tokens are taken, or with `--defaults`
those by the model's sampling defaults. With a second program,
ends with status 1 if it answers less than 90 % of those that the first one answers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .asking import answers, is_right
from .questions import QUESTIONS

MIN_SHARE = 0.9


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies questions", description=__doc__)
    parser.add_argument("programs", nargs="+", metavar="PTE", help="a language model with its tokenizer beside it")
    parser.add_argument("--defaults", action="store_true", help="sample by the model's defaults")
    options = parser.parse_args(arguments)
    if len(options.programs) > 2:
        parser.error("one program, or two: the second is measured by the first")
    settings = {} if options.defaults else {"temperature": 0.0}
    values = [answers(path, QUESTIONS, **settings) for path in options.programs]
    right = [[is_right(q, text) for q, text in zip(QUESTIONS, each, strict=True)] for each in values]
    for number, question in enumerate(QUESTIONS):
        print(f"{question.text}  [{question.accepted}]")
        for each, marks in zip(values, right, strict=True):
            print(f"  {'right' if marks[number] else 'WRONG'}  {' '.join(each[number].split())}")
    for path, marks in zip(options.programs, right, strict=True):
        print(f"{path}: {sum(marks)} of {len(marks)} are right")
    return judged(*right) if len(right) == 2 else 0


def judged(reference: Sequence[bool], program: Sequence[bool]) -> int:
    kept = sum(one and other for one, other in zip(reference, program, strict=True))
    share = kept / max(1, sum(reference))
    print(f"the second answers {kept} of the {sum(reference)} that the first answers, {share:.0%}")
    return int(share < MIN_SHARE)


if __name__ == "__main__":
    sys.exit(main())
