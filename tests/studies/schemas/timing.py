"""Measure the cost of a constraint per token."""

from __future__ import annotations

import statistics
from typing import Any

from webpte.llm import LLM

TOKENS = 48
FREE_TEXT = {"regex": r"(?s:.){4000}"}  # any text, and no end: all that is left of the constraint is its mask


def ratio(llm: LLM, rounds: int) -> float:
    """Return the time of a token that a mask allows, by that of a free one. The two are decoded in turn."""
    ratios = []
    for number in range(rounds + 1):
        times = [_seconds(llm, number, value) for value in ({}, FREE_TEXT)]
        if number:  # the first are also prepared
            ratios.append(times[1] / times[0])
    return statistics.median(ratios)


def _seconds(llm: LLM, number: int, value: dict[str, Any]) -> float:
    """Return the seconds of a token after the first, one token per submit."""
    stream = llm.complete(
        f"Once upon a time, in the year {1800 + number},",
        max_new_tokens=TOKENS,
        tokens_per_submit=1,
        speculate=False,
        **value,
    )
    stream.result()
    return stream.usage.decode_seconds / (len(stream.tokens) - 1)
