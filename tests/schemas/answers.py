"""A language model's answers to schemas, and what `jsonschema` says of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import jsonschema

from webpte.llm import LLM


@dataclass(frozen=True)
class Answer:
    """What a model said."""

    schema: dict[str, Any]
    text: str
    tokens: int
    finished: bool


def answer(llm: LLM, schemas: Iterable[dict[str, Any]], most_tokens: int) -> list[Answer]:
    """All of them, side by side; every other one is drawn instead of the likeliest."""
    listed = list(schemas)
    streams = []
    for number, asked in enumerate(listed):
        question = f"Make up example {number}. Answer with JSON."
        prompt = [{"role": "user", "content": question}] if llm.template is not None else question
        drawn: dict[str, Any] = {"temperature": 0.8, "seed": number} if number % 2 else {}
        streams.append(llm.generate(prompt, json_schema=asked, max_new_tokens=most_tokens, **drawn))
        streams[-1].start()
    found = []
    for asked, stream in zip(listed, streams, strict=True):
        for _ in stream:
            pass
        finished = stream.usage.finish_reason == "stop"
        found.append(Answer(asked, stream.text, len(stream.tokens), finished))
    return found


def wrong(found: Answer) -> str | None:
    """What is wrong with a finished answer."""
    try:
        jsonschema.validate(json.loads(found.text), found.schema)
    except (ValueError, jsonschema.ValidationError) as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    return None
