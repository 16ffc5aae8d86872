"""A language model's answers to schemas, validated by `jsonschema`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jsonschema

from webpte.llm import LLM


@dataclass(frozen=True)
class Answer:
    """An answer of a model."""

    schema: dict[str, Any]
    text: str
    tokens: int
    finished: bool


def answer(llm: LLM, schemas: Iterable[dict[str, Any]], max_tokens: int) -> list[Answer]:
    """Return all of them, side by side; every other one is drawn instead of the most probable."""
    listed, asked = list(schemas), []
    for number, expected in enumerate(listed):
        question = f"Make up example {number}. Answer with JSON."
        prompt = [{"role": "user", "content": question}] if llm.template is not None else question
        drawn = {"temperature": 0.8, "seed": number} if number % 2 else {}
        asked.append({"prompt": prompt, "json_schema": expected, **drawn})
    answers = llm.generate_many(asked, max_new_tokens=max_tokens)
    return [
        Answer(expected, actual.text, len(actual.tokens), actual.usage.finish_reason == "stop")
        for expected, actual in zip(listed, answers, strict=True)
    ]


def wrong(result: Answer) -> str | None:
    """Return what is wrong with a finished answer."""
    try:
        jsonschema.validate(json.loads(result.text), result.schema)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None
