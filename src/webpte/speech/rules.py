"""Whisper's rules for the next token: what may not be said, and where timestamps belong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..task_file import TaskFile

Array = np.ndarray[Any, Any]
NEVER = np.float32(-np.inf)


@dataclass(frozen=True)
class Rules:
    """Tokens of a model that mean something, as the file beside its program says."""

    start: int  # of a transcript
    end: int
    no_timestamps: int | None  # said where none are wanted; those that are timestamps come behind it
    never: tuple[int, ...]
    not_first: tuple[int, ...]
    latest_first_timestamp: int | None  # how many steps of 0.02 s after the beginning it may lie

    @classmethod
    def read(cls, file: TaskFile, vocabulary: int) -> Rules:
        last = vocabulary - 1
        return cls(
            start=file.integer("start_token", 0, last),
            end=file.integer("end_token", 0, last),
            no_timestamps=file.integer("no_timestamps_token", 1, last) if file.has("no_timestamps_token") else None,
            never=file.integers("suppress_tokens", None, 0, last),
            not_first=file.integers("begin_suppress_tokens", None, 0, last),
            latest_first_timestamp=(
                file.integer("max_initial_timestamp_index", 0) if file.has("max_initial_timestamp_index") else None
            ),
        )

    @property
    def first_timestamp(self) -> int:
        """The token of 0.00 seconds, and beyond all tokens in a model without timestamps."""
        return self.no_timestamps + 1 if self.no_timestamps is not None else 1 << 31

    @property
    def no_speech(self) -> int | None:
        return self.no_timestamps - 1 if self.no_timestamps is not None else None

    def allowed(self, logits: Array, said: Sequence[int], timestamps: bool) -> Array:
        """Logits of the tokens that may follow what was said; minus infinity for all others."""
        scores = logits.astype(np.float32)
        if not said:
            scores[list(self.not_first)] = NEVER
        scores[list(self.never)] = NEVER
        if timestamps:
            self._place_timestamps(scores, said)
        return scores

    def _place_timestamps(self, scores: Array, said: Sequence[int]) -> None:
        """They come in pairs, one at the end of a text and one at the beginning of the next, and never go back."""
        first = self.first_timestamp
        scores[self.no_timestamps] = NEVER
        behind_one = bool(said) and said[-1] >= first
        behind_two = behind_one and (len(said) < 2 or said[-2] >= first)
        if behind_two:  # now a text; the first timestamp of all stands alone
            scores[first:] = NEVER
        elif behind_one:  # now its partner, or the end
            scores[: self.end] = NEVER
        if earlier := [token for token in said if token >= first]:
            partner = behind_one and not behind_two
            scores[first : earlier[-1] + (0 if partner else 1)] = NEVER  # a text takes time: its end lies behind
        if not said:
            scores[:first] = NEVER
            if self.latest_first_timestamp is not None:
                scores[first + self.latest_first_timestamp + 1 :] = NEVER
        # All timestamps together may be likelier than the likeliest text, though each alone is not.
        if _log_sum(scores[first:]) > scores[:first].max():
            scores[:first] = NEVER


def _log_sum(scores: Array) -> float:
    """log(sum(exp(scores))), minus infinity for none."""
    most = scores.max(initial=NEVER)
    return float(most + np.log(np.exp(scores - most).sum())) if np.isfinite(most) else float(most)


def log_probability(logits: Array, token: int) -> float:
    return float(logits[token]) - _log_sum(logits)
