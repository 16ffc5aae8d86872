"""What was said in a window as segments, and where the next window begins: the sequential way of Whisper's authors."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

FRAMES = 2  # of the spectrogram, for each step of a timestamp


class Said(NamedTuple):
    """Tokens between two timestamps, in their steps of 0.02 s since the window's beginning."""

    start: int
    end: int
    tokens: tuple[int, ...]


def split(tokens: Sequence[int], first_timestamp: int, frames: int) -> tuple[list[Said], int]:
    """Segments of a window with so many frames of a spectrogram, and how many frames later the next one begins.

    Two timestamps in a row end a segment. What comes behind the last such pair was cut off by the window's end: the
    next window begins there. A single timestamp at the end says that nothing follows.
    """
    marks = [token >= first_timestamp for token in tokens]
    cuts = [index for index in range(1, len(tokens)) if marks[index - 1] and marks[index]]
    if not cuts:
        stamps = [token - first_timestamp for token, mark in zip(tokens, marks, strict=True) if mark]
        return [Said(0, stamps[-1] if stamps and stamps[-1] else frames // FRAMES, tuple(tokens))], frames
    whole = marks[-2:] == [False, True]
    bounds = [0, *cuts, len(tokens)] if whole else [0, *cuts]
    found = [
        Said(tokens[start] - first_timestamp, tokens[stop - 1] - first_timestamp, tuple(tokens[start:stop]))
        for start, stop in itertools.pairwise(bounds)
    ]
    if whole:
        return found, frames
    # As transformers does, its last segment keeps the timestamp that begins what was cut off.
    found[-1] = found[-1]._replace(tokens=(*found[-1].tokens, tokens[cuts[-1]]))
    return found, (tokens[cuts[-1] - 1] - first_timestamp) * FRAMES
