"""Requests to a page and to the native player."""

from __future__ import annotations

from typing import Any

QUESTIONS = (
    "What is the capital of France?",
    "Write a haiku about the sea.",
    "Explain in one sentence why the sky is blue.",
    "Name three fruits that are red.",
    "Translate to German: good morning, dear friend.",
    "What comes next: 2, 4, 8, 16?",
    "Schreibe einen Satz über Züge, Käse und 東京. 🚂",
    "Give me a short recipe for pancakes.",
)


def greedy(tokens: int) -> list[dict[str, Any]]:
    return [_asked(question, max_tokens=tokens) for question in QUESTIONS]


def seeded(tokens: int) -> list[dict[str, Any]]:
    settings: list[dict[str, Any]] = [
        {"temperature": 0.7, "top_p": 0.9, "seed": 1},
        {"temperature": 1.0, "top_k": 40, "seed": 2},
        {"temperature": 1.3, "min_p": 0.05, "seed": 3},
        {"temperature": 0.8, "repetition_penalty": 1.2, "presence_penalty": 0.3, "seed": 4},
    ]
    return [_asked(q, max_tokens=tokens, **s) for q, s in zip(QUESTIONS, settings, strict=False)]


def _asked(question: str, **settings: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": question}], **settings}
