"""How the next token of an answer is chosen, given those that came before it."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .choice import Choice, choice_of
from .sampled import MOST_EDITS
from .settings import Settings

Array = np.ndarray[Any, Any]
FIRST = 256  # edits that there is room for at first


class Choosing:
    """Keeps account of an answer's tokens, as far as its settings ask for it: a token costs a few microseconds.

    Of more than `most_edits` different tokens, the penalties of those that were new last are kept.
    """

    def __init__(self, settings: Settings, prompt: Iterable[int] = (), most_edits: int = MOST_EDITS) -> None:
        self._settings = settings
        self._most_edits = most_edits
        self._plain = choice_of(settings, 0)
        self._penalises = (settings.repetition_penalty, settings.presence_penalty, settings.frequency_penalty) != (
            1,
            0,
            0,
        )
        self._counts: dict[int, int] = {}  # of tokens in the answer; 0 for those that are only in the prompt
        self._places: dict[int, int] = {}  # of tokens among the edits
        self._edits: Array = np.zeros((FIRST, 3), np.int32)  # see Choice.edits
        for token in settings.logit_bias:
            self._edit(token)
        if settings.repetition_penalty != 1:
            for token in dict.fromkeys(prompt):
                self._counts[token] = 0
                self._edit(token)

    @property
    def steady(self) -> bool:
        """Whether the choices of all tokens to come are the same but for their step."""
        return not self._penalises

    def add(self, token: int) -> None:
        """The answer goes on with a token."""
        if self._penalises:
            self._counts[token] = self._counts.get(token, 0) + 1
            self._edit(token)

    def choice(self, step: int, drafted: Sequence[int] = (), mask: Array | None = None) -> Choice:
        """How token number `step` of the answer is chosen, if `drafted` follow what was added. None is added by it."""
        if drafted and self._penalises:
            return self._with(drafted).choice(step, mask=mask)
        edits = self._edits[: len(self._places)].copy() if self._places else None
        return replace(self._plain, step=step, edits=edits, mask=mask)

    def _with(self, tokens: Iterable[int]) -> Choosing:
        other = copy.copy(self)
        other._counts, other._places, other._edits = self._counts.copy(), self._places.copy(), self._edits.copy()
        for token in tokens:
            other.add(token)
        return other

    def _edit(self, token: int) -> None:
        """Let the edits say of a token what they have to."""
        settings = self._settings
        place = self._places.get(token)
        if place is None:
            place = self._place_for(token)
        count = self._counts.get(token)
        addend = settings.logit_bias.get(token, 0.0)
        if count:
            addend -= settings.presence_penalty + settings.frequency_penalty * count
        floats = self._edits.view(np.float32)
        self._edits[place, 0] = token
        floats[place, 1] = 1.0 if count is None else settings.repetition_penalty
        floats[place, 2] = addend

    def _place_for(self, token: int) -> int:
        """A place for a token that has none."""
        place = len(self._places)
        if place == self._most_edits:
            oldest = next(known for known in self._places if known not in self._settings.logit_bias)
            place = self._places.pop(oldest)
        elif place == len(self._edits):
            self._edits = np.concatenate([self._edits, np.zeros_like(self._edits)])
        self._places[token] = place
        return place
