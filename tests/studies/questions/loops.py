"""Count answers that loop: `python -m tests.studies questions.loops PROGRAM.pte [--greedy] [--count N]`.

An answer loops if its end repeats one block, back to back, at least three times and over at least 24 tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import Any

from webpte.llm import LLM

FORMS = (
    "Explain {} in simple words.",
    "Write a short story about {}.",
    "Give me ten facts about {}.",
    "Write a poem about {}.",
    "List the advantages and disadvantages of {}.",
    "Write a letter to a friend about {}.",
    "What should a beginner know about {}?",
    "Describe the history of {}.",
    "Write a dialogue between two people about {}.",
    "How will {} change in the next hundred years?",
    "Make a table about {}.",
    "Write an essay about {}.",
    "Give me a plan for a week with {}.",
    "What are common mistakes with {}?",
    "Tell me a joke about {}.",
    "Compare {} with the weather.",
    "Write a song about {} with many emojis.",
    "Write a Python program about {}.",
    "Name twenty words that have to do with {}.",
    "Keep talking about {} for as long as you can.",
)
TOPICS = (
    "cats", "the sea", "cooking", "trains", "mathematics", "music", "the Roman Empire", "bees", "money", "sleep",
)  # fmt: skip
MAX_NEW_TOKENS = 256
MIN_REPEATS, MIN_LOOP_TOKENS = 3, 24


def prompts() -> list[str]:
    """Return 200 open questions, in an order whose every part has all forms."""
    return [FORMS[n % len(FORMS)].format(TOPICS[(n // len(FORMS) + n) % len(TOPICS)]) for n in range(200)]


def loop_period(tokens: Sequence[int]) -> int:
    """Return the length of the block that the end repeats; 0 if the answer does not loop."""
    for period in range(1, len(tokens) // MIN_REPEATS + 1):
        repeated = period
        while repeated < len(tokens) and tokens[-repeated - 1] == tokens[-repeated - 1 + period]:
            repeated += 1
        if repeated >= max(MIN_REPEATS * period, MIN_LOOP_TOKENS):
            return period
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.studies questions.loops", description=__doc__)
    parser.add_argument("program", metavar="PTE", help="a language model with its tokenizer beside it")
    parser.add_argument("--greedy", action="store_true", help="temperature 0 instead of the model's defaults")
    parser.add_argument("--settings", type=json.loads, default={}, metavar="JSON", help="settings of `generate`")
    parser.add_argument("--count", type=int, default=200, metavar="N", help="questions (200)")
    parser.add_argument("--save", metavar="JSONL", help="write the answers")
    options = parser.parse_args(arguments)
    settings: dict[str, Any] = options.settings | ({"temperature": 0.0} if options.greedy else {})
    asked = [[{"role": "user", "content": text}] for text in prompts()[: options.count]]
    loops = tokens = answers = 0
    started = time.perf_counter()
    with LLM.load(options.program) as llm:
        for messages, answer in zip(
            asked, llm.generate_many(asked, max_new_tokens=MAX_NEW_TOKENS, **settings), strict=True
        ):
            if answer.error is not None:
                raise answer.error
            period = loop_period(answer.tokens)
            answers, tokens, loops = answers + 1, tokens + len(answer.tokens), loops + (period > 0)
            if period:
                print(f"{messages[0]['content']}  loops over {period} tokens: {answer.text[-60:]!r}", flush=True)
            if options.save:
                with open(options.save, "a", encoding="utf-8") as file:
                    row = {"prompt": messages[0]["content"], "text": answer.text, "tokens": answer.tokens}
                    file.write(json.dumps(row) + "\n")
    print(f"{loops} of {answers} answers loop; {tokens} tokens in {time.perf_counter() - started:.0f} s")
    return int(loops > 0)


if __name__ == "__main__":
    sys.exit(main())
