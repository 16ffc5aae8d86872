"""Asking a model, and telling whether it has answered."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from webpte.llm import LLM

from .questions import Question

MAX_NEW_TOKENS = 40  # of an answer: one that has not said it by then has not answered


def is_right(question: Question, answer: str) -> bool:
    """Return whether an accepted answer is among the words, in letters of any case."""
    return re.search(rf"(?<!\w)(?:{question.accepted})(?!\w)", answer, re.IGNORECASE) is not None


def answers(path: str, questions: Sequence[Question], **settings: Any) -> list[str]:
    """Return the answer to each, through the chat template, side by side. Without settings, by the model's defaults."""
    with LLM.load(path) as llm:
        asked = [[{"role": "user", "content": question.text}] for question in questions]
        results = list(llm.generate_many(asked, max_new_tokens=MAX_NEW_TOKENS, **settings))
    for answer in results:
        if answer.error is not None:
            raise answer.error
    return [answer.text.strip() for answer in results]
