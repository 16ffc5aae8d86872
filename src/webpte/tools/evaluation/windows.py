"""A text of any length as windows that a model's context holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...errors import InputError
from .measures import Array

LONGEST_WINDOW = 1024  # tokens that are fed, however long a context is: so figures of two programs can be compared


class TextWindow(NamedTuple):
    """Tokens of which those from `first` on are predicted, each from all before it in the window."""

    tokens: tuple[int, ...]
    first: int

    @property
    def scored(self) -> int:
        return len(self.tokens) - self.first


@dataclass(frozen=True)
class TextTokens:
    """A text as a language model reads it."""

    tokens: Sequence[int]  # of the text alone
    prefix: Sequence[int]  # tokens that the model expects before every text
    start: int | None  # the begin-of-text token, or else the end-of-text token, if the tokenizer names one

    def first(self, count: int) -> TextTokens:
        """Return the first `count` tokens of the text."""
        return replace(self, tokens=self.tokens[:count])


def rolling_windows(text: TextTokens, context: int) -> list[TextWindow]:
    """Return windows that do not overlap, as lm-evaluation-harness makes them for its rolling log likelihoods.

    The first window starts with `text.start`, every other with the last token of the one before. The last window is
    filled up with tokens before it, so that it is as long as the others.
    """
    size = _size(context, 0)
    known = [*text.tokens] if text.start is None else [text.start, *text.tokens]
    _check_count(text, len(known))
    found = [TextWindow(tuple(known[: size + 1]), 1)]
    while (done := 1 + sum(window.scored for window in found)) < len(known):
        end = min(done + size, len(known))
        tokens = tuple(known[end - size - 1 : end])
        found.append(TextWindow(tokens, len(tokens) - (end - done)))
    return found


def sliding_windows(text: TextTokens, context: int, stride: int) -> list[TextWindow]:
    """Return windows of which each predicts up to `stride` tokens and starts with known tokens of the one before.

    Every window starts with `text.prefix`, and positions begin at 0 in each.
    """
    prefix, tokens = text.prefix, text.tokens
    size = _size(context, len(prefix)) - len(prefix)  # of text in a window
    if stride >= size:
        raise InputError(
            f"stride: expected at most {size - 1}, one less than the {size} tokens of a window, got {stride}. "
            "Without a stride, windows do not overlap.",
            code="out_of_range",
        )
    _check_count(text, len(tokens) + len(prefix))
    found = [TextWindow((*prefix, *tokens[:size]), max(1, len(prefix)))]
    while (end := sum(window.scored for window in found) + (not prefix)) < len(tokens):
        start = end - (size - stride)
        found.append(TextWindow((*prefix, *tokens[start : start + size]), len(prefix) + size - stride))
    return found


def _size(context: int, prefix: int) -> int:
    if context < 2 + prefix:
        raise InputError(
            f"context: expected at least {2 + prefix} tokens to measure in, got {context}", code="context_too_short"
        )
    return min(context, LONGEST_WINDOW)


def _check_count(text: TextTokens, known: int) -> None:
    if not text.tokens or known < 2:
        raise InputError(
            f"text: expected at least one token to predict and one before it, got {len(text.tokens)} tokens",
            code="too_few_tokens",
        )


def pieces(window: TextWindow, size: int) -> Iterator[tuple[Sequence[int], Array, int]]:
    """Tokens to feed, those that come behind the last of them, (N,), and the position of the first.

    The last token of a window has nothing behind it, and what is known before the first prediction is fed in a piece of
    its own, with no tokens to come.
    """
    tokens, start = window.tokens, window.first - 1
    if start:
        yield tokens[:start], np.empty(0, np.int64), 0
    for at in range(start, len(tokens) - 1, size):
        end = min(at + size, len(tokens) - 1)
        yield tokens[at:end], np.array(tokens[at + 1 : end + 1]), at
