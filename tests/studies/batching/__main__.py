"""Many sequences at once: `python -m tests.studies batching MODEL.pte | --family lfm2 [--count 200] [--only throughput
...]`.

That each has the tokens it has alone (greedy and seeded, prompts of 1 to 600 tokens, joining and leaving); tokens a
second of 1, 2, 4, 8 and 16 at a time; what a step of 8 creates, and the share of it that Python takes; how long 7 wait
for a token while a prompt of 600 is read; and the first token of 8 that share 300 tokens. On an idle machine. Ends with
status 1 if tokens differ, steps create something, or a shared beginning is computed again. `--family` builds a few
layers of a published model's width, with random weights of 4 bits and a tiny vocabulary.
"""

from __future__ import annotations

import argparse
import sys
import tempfile

from webpte.llm import LLM

from . import measures
from .wide import WIDE, built

SIZES = (1, 2, 4, 8, 16)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies batching", description=__doc__)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("model", nargs="?", help="a language model with its tokenizer beside it")
    chosen.add_argument("--family", choices=WIDE, help="a few layers of its width")
    parser.add_argument("--count", type=int, default=200, help="sequences that are compared with themselves alone")
    parser.add_argument("--turns", type=int, default=3, help="of each number of sequences at a time")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=SIZES, help="sequences at a time; the first is compared"
    )
    parser.add_argument("--answers", type=int, default=16, help="of a turn")
    kinds = {"equal": equal, "throughput": throughput, "steps": steps, "gaps": gaps, "prefix": prefix}
    parser.add_argument("--only", nargs="+", choices=kinds, default=list(kinds))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, LLM.load(options.model or built(options.family, folder)) as llm:
        if llm.batching_unsupported_reason is not None:
            print(f"one sequence at a time: {llm.batching_unsupported_reason}")
            return 1
        llm.stop_tokens = frozenset()
        good = [kinds[name](llm, options) for name in options.only]
    return 0 if all(good) else 1


def equal(llm: LLM, options: argparse.Namespace) -> bool:
    longest = min(600, llm.capacity * 3 // 4)
    result = measures.different(llm, options.count, longest, 12, (4, 20))
    print(
        f"equal: {options.count - len(result)} of {options.count} sequences have the tokens they have alone; {result}"
    )
    return not result


def throughput(llm: LLM, options: argparse.Namespace) -> bool:
    rates = measures.throughput(llm, options.sizes, options.turns, options.answers)
    first = rates[options.sizes[0]]
    print("throughput, tokens a second by sequences at a time, and by second of computing:")
    for size, (seconds, work) in rates.items():
        print(f"  {size:2}: {seconds:.1f} ({seconds / first.seconds:.2f} x), {work / first.work:.2f} x", flush=True)
    return True


def steps(llm: LLM, options: argparse.Namespace) -> bool:
    result = measures.steady(llm, 8, 20)
    print(
        f"steps of 8: {result.lowerings} lowerings, {result.objects} GPU objects; Python takes {result.host:.1%}",
        flush=True,
    )
    return not result.lowerings and not result.objects


def gaps(llm: LLM, options: argparse.Namespace) -> bool:
    result = measures.gaps(llm, 7, min(600, llm.capacity * 3 // 4))
    seconds, work = result.largest.seconds / result.plain.seconds, result.largest.work / result.plain.work
    print(
        f"gaps of 7: {result.plain.seconds * 1e3:.0f} ms, at most {result.largest.seconds * 1e3:.0f} ms "
        f"({seconds:.2f} x; of computing {work:.2f} x) "
        f"in {result.passes} passes that read a prompt of 600",
        flush=True,
    )
    return True


def prefix(llm: LLM, options: argparse.Namespace) -> bool:
    result = measures.prefix(llm, 8, min(300, llm.capacity // 2))
    print(
        f"first tokens of 8: {result.apart:.2f} s, with 300 tokens in common that are cached {result.shared:.2f} s "
        f"({result.shared / result.apart:.3f} x); {result.computed} rows of these computed again",
        flush=True,
    )
    return not result.computed


if __name__ == "__main__":
    sys.exit(main())
