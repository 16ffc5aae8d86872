"""Sampling: the parameters of a row, the logits processor that makes them, and the token that comes back."""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError
from ..fusion.sampler import (
    EDITED,
    LIKELIEST,
    LIKELIEST_LOG_PROBABILITY,
    LOG_PROBABILITY,
    MOST_EDITS,
    SETTINGS,
    TOKEN,
    TOPS,
    padded,
)
from .errors import LogitsError
from .settings import Settings

Array = np.ndarray[Any, Any]
ALL_HIDDEN = -2  # in a token's place: no logit is above minus infinity; any other negative number: NaN or infinity
NO_MASK = -1
_ROW = struct.Struct("<fiffiiii")  # SETTINGS


@dataclass(frozen=True)
class Choice:
    """How the next token of one sequence is chosen. The device cannot refuse any of it: `Settings` checks it before."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    step: int = 0  # tokens that the sequence has chosen before
    logprob: bool = False  # whether anybody asks for it
    tops: int = 0  # how many of the likeliest tokens to report
    # i32[E, 3] of (token, bits of a factor, bits of an addend), each token once, at most MOST_EDITS: a logit above 0 is
    # divided by the factor, another multiplied; then the addend is added.
    edits: Array | None = field(default=None, compare=False)
    # i32[mask_words(vocabulary)]: a bit for each token that may be chosen, the lowest of a word first.
    mask: Array | None = field(default=None, compare=False)


class Chosen(NamedTuple):
    """A token and its log probability, which is that of the logits as they are, at temperature 1: NaN where nobody has
    asked for it. `tops` are the likeliest tokens with theirs, where somebody has.

    A negative token is no choice at all: see `impossible`.
    """

    token: int
    logprob: float
    tops: tuple[tuple[int, float], ...] = ()


def choice_of(settings: Settings, step: int) -> Choice:
    """How an answer's token number `step` is chosen, but for what depends on the tokens before it: see `Choosing`."""
    return Choice(
        settings.temperature,
        settings.top_k,
        settings.top_p,
        settings.min_p,
        settings.seed,
        step,
        settings.logprobs,
        settings.top_logprobs,
    )


def pack(choices: Sequence[Choice], edited_words: int | None = None) -> tuple[Any, ...]:
    """The sampler's inputs, for rows in the order of the choices: what they ask for as words, how many of these are
    edits, and the features that are needed.

    `edited_words` is how many words there are for all that is more than settings, where one number is planned for.
    """
    edits = sum(len(c.edits) for c in choices if c.edits is not None)
    masks = sum(len(c.mask) for c in choices if c.mask is not None)
    first = len(choices) * len(SETTINGS)
    features = TOPS if any(c.tops for c in choices) else 0
    if edits or masks or (features and edited_words is not None):
        features |= EDITED
    count = first + padded(4 * edits + masks) if edited_words is None or not features else edited_words
    if count < first + 4 * edits + masks:
        raise InputError(f"{edits} edits and {masks} words of masks do not fit into the {count} words that are planned")
    data = bytearray(4 * count)
    for row, c in enumerate(choices):
        _ROW.pack_into(data, row * _ROW.size, c.temperature, c.top_k, c.top_p, c.min_p, c.seed, c.step, NO_MASK, 0)
    words = np.frombuffer(data, np.int32)
    if edits or masks:
        _put_edits(choices, words[first : first + 4 * edits].reshape(edits, 4))
        _put_masks(choices, words, first + 4 * edits)
    return words, edits, features


def _put_edits(choices: Sequence[Choice], quads: Array) -> None:
    at = 0
    for row, choice in enumerate(choices):
        if choice.edits is not None:
            end = at + len(choice.edits)
            quads[at:end, 0] = row
            quads[at:end, 1:] = choice.edits
            at = end


def _put_masks(choices: Sequence[Choice], words: Array, at: int) -> None:
    for row, choice in enumerate(choices):
        if choice.mask is not None:
            end = at + len(choice.mask)
            words[at:end] = choice.mask.view(np.int32)
            words[row * len(SETTINGS) + SETTINGS.index("mask")] = at
            at = end


def wanted(choices: Sequence[Choice]) -> tuple[int, ...]:
    """The outputs that tell what was chosen: those that `unpack` takes."""
    if any(c.tops for c in choices):
        return (TOKEN, LOG_PROBABILITY, LIKELIEST, LIKELIEST_LOG_PROBABILITY)
    return (TOKEN, LOG_PROBABILITY) if any(c.logprob for c in choices) else (TOKEN,)


def unpack(outputs: Sequence[Any]) -> list[Chosen]:
    """What was chosen for each row. If a row of the pass has asked for tops, all get as many as there are."""
    tokens = outputs[0].tolist()
    log_probabilities = outputs[1].tolist() if len(outputs) > 1 else [math.nan] * len(tokens)
    if len(outputs) < 4:
        return list(map(Chosen, tokens, log_probabilities))
    tops = [
        tuple(pair for pair in zip(*row, strict=True) if pair[0] >= 0)
        for row in zip(outputs[2].tolist(), outputs[3].tolist(), strict=True)
    ]
    return list(map(Chosen, tokens, log_probabilities, tops))


def impossible(mark: int, position: int) -> LogitsError:
    """What a negative number in a token's place means."""
    why = "are minus infinity for every token that may come" if mark == ALL_HIDDEN else "hold NaN or infinity"
    return LogitsError(
        f"no token can be chosen: the logits behind position {position} {why}. Weights or inputs beyond the range of "
        "the program's dtype do that; `webpte compare` finds the first call whose result is not finite.",
        code="all_hidden" if mark == ALL_HIDDEN else "not_finite",
    )


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
