"""Measure how much sooner an answer is complete with drafts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from webpte.llm import LLM
from webpte.llm.generation import Generation

TOKENS = 96


def prompt(llm: LLM, question: str) -> str | list[dict[str, str]]:
    return [{"role": "user", "content": question}] if llm.template is not None else question


def ask(llm: LLM, question: str, count: int, **settings: Any) -> Generation:
    """Return a whole answer."""
    answer = llm.generate(prompt(llm, question), max_new_tokens=count, **settings)
    answer.result()
    return answer


def faster(llm: LLM, questions: Sequence[str], rounds: int, **settings: Any) -> list[float]:
    """For each question, the time of its decoding without drafts by that with them, as they come by themselves."""
    ratios: list[list[float]] = [[] for _ in questions]
    for turn in range(rounds + 1):
        for number, question in enumerate(questions):
            plain, drafting = (ask(llm, question, TOKENS, speculate=how, **settings) for how in (False, None))
            assert plain.tokens == drafting.tokens
            if turn:  # in the first, passes of new numbers of rows are prepared
                ratios[number].append(plain.usage.decode_seconds / drafting.usage.decode_seconds)
    return [statistics.median(result) for result in ratios]
