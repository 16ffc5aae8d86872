"""What models and answers look like in a notebook or at a prompt. Nothing is computed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .generation import Usage

LONGEST_TEXT = 60  # characters of an answer in a line


def answer_line(usage: Usage, begun: bool, text: str) -> str:
    """The repr of an answer."""
    if not begun:
        return f"Generation(not begun, {usage.prompt_tokens} prompt tokens)"
    shown = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
    state = usage.finish_reason or "being read"
    return f"Generation({state}, {usage.prompt_tokens} prompt tokens, {usage.completion_tokens} generated, {shown!r})"
