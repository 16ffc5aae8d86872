"""A text of any length as windows that a model's context holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ...errors import InputError
from .measures import Array

LONGEST_WINDOW = 1024  # tokens, however long a context is: so figures of two programs can be compared
SHARED = 4  # a window begins with the last quarter of the one before


class Window(NamedTuple):
    """Tokens of which those from `first` on are predicted, each from all before it in the window."""

    tokens: tuple[int, ...]
    first: int

    @property
    def scored(self) -> int:
        return len(self.tokens) - self.first


def windows(tokens: Sequence[int], context: int, prefix: Sequence[int] = ()) -> list[Window]:
    """Every token of the text is predicted once, but the first where nothing stands before it.

    `prefix` is what the model expects before every text, such as a begin-of-text token: each window starts with it.
    Behind it, a window that is not the first starts with the last quarter of the one before, whose tokens are known
    and are not counted again; positions begin at 0 in each.
    """
    size = min(context, LONGEST_WINDOW) - len(prefix)  # of text in a window
    if size < 2:
        raise InputError(
            f"a context of {context} tokens is too short to measure in: {2 + len(prefix)} are the least",
            code="context_too_short",
        )
    if not tokens or len(tokens) + len(prefix) < 2:
        raise InputError(
            f"the text has {len(tokens)} tokens; one to predict and one before it are the least", code="too_few_tokens"
        )
    shared = max(1, size // SHARED)
    found = [Window((*prefix, *tokens[:size]), max(1, len(prefix)))]
    while (end := sum(window.scored for window in found) + (not prefix)) < len(tokens):
        start = end - shared
        found.append(Window((*prefix, *tokens[start : start + size]), len(prefix) + shared))
    return found


def pieces(window: Window, size: int) -> Iterator[tuple[Sequence[int], Array, int]]:
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
