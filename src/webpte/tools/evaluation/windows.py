"""Split a text of any length into windows that fit the context of a model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ...errors import InputError
from ...text import plural
from .measures import Array

MAX_WINDOW_TOKENS = 1024  # however long the context is, so that figures of two programs can be compared


class TextWindow(NamedTuple):
    """Tokens of which those from `first` on are predicted, each from all tokens before it in the window."""

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
    windows = [TextWindow(tuple(known[: size + 1]), 1)]
    while (done := 1 + sum(window.scored for window in windows)) < len(known):
        end = min(done + size, len(known))
        tokens = tuple(known[end - size - 1 : end])
        windows.append(TextWindow(tokens, len(tokens) - (end - done)))
    return windows


def sliding_windows(text: TextTokens, context: int, stride: int) -> list[TextWindow]:
    """Return windows of which each predicts up to `stride` tokens and starts with known tokens of the one before.

    Every window starts with `text.prefix`, and positions begin at 0 in each.
    """
    prefix, tokens = text.prefix, text.tokens
    size = _size(context, len(prefix)) - len(prefix)  # of text in a window
    if stride >= size:
        raise InputError(
            argument="stride",
            expected=f"at most {size - 1}, one less than the {size} tokens of a window",
            got=stride,
            hint="Without a stride, windows do not overlap.",
            code="out_of_range",
        )
    _check_count(text, len(tokens) + len(prefix))
    windows = [TextWindow((*prefix, *tokens[:size]), max(1, len(prefix)))]
    while (end := sum(window.scored for window in windows) + (not prefix)) < len(tokens):
        start = end - (size - stride)
        windows.append(TextWindow((*prefix, *tokens[start : start + size]), len(prefix) + size - stride))
    return windows


def _size(context: int, prefix: int) -> int:
    if context < 2 + prefix:
        raise InputError(
            argument="context", expected=f"at least {2 + prefix} tokens", got=context, code="context_too_short"
        )
    return min(context, MAX_WINDOW_TOKENS)


def _check_count(text: TextTokens, known: int) -> None:
    if not text.tokens or known < 2:
        raise InputError(
            argument="text",
            expected="at least one token to predict and one before it",
            got=plural(len(text.tokens), "token"),
            code="too_few_tokens",
        )


def chunks(window: TextWindow, size: int) -> Iterator[tuple[Sequence[int], Array, int]]:
    """Yield tokens to feed, the target tokens after each of the last ones, (N,), and the position of the first.

    Tokens before the first prediction are a chunk of their own, without targets.
    """
    tokens, start = window.tokens, window.first - 1
    if start:
        yield tokens[:start], np.empty(0, np.int64), 0
    for at in range(start, len(tokens) - 1, size):
        end = min(at + size, len(tokens) - 1)
        yield tokens[at:end], np.array(tokens[at + 1 : end + 1]), at
