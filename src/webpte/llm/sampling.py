"""Sampling: the parameters of a row, the logits processor that makes them, and the token that comes back."""

from __future__ import annotations

import copy
import math
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ..errors import InputError, LogitsError
from ..fusion.llm_rewrites import (
    FEATURE_ADJUSTMENTS,
    FEATURE_TOP_LOGPROBS,
    LOGPROB,
    MAX_LOGIT_ADJUSTMENTS,
    SAMPLING_WORDS,
    TOKEN,
    TOP_LOGPROBS,
    TOP_TOKENS,
    padded_words,
)
from ..typing import Array
from .settings import SamplingParams

ALL_HIDDEN = -2  # in a token's place: no logit is above minus infinity; any other negative number: NaN or infinity
NO_MASK = -1
_ROW = struct.Struct("<fiffiiii")  # SAMPLING_WORDS


@dataclass(frozen=True)
class RowSamplingParams:
    """How the next token of one sequence is sampled. The device checks none of it: `SamplingParams` does before."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    step: int = 0  # tokens that the sequence has generated before
    logprob: bool = False  # whether to compute it
    top_logprobs: int = 0  # tokens to report beside the sampled one
    # i32[E, 3] of (token, bits of a factor, bits of an addend), each token once, at most MAX_LOGIT_ADJUSTMENTS: a logit
    # above 0 is divided by the factor, another multiplied; then the addend is added.
    logit_adjustments: Array | None = field(default=None, compare=False)
    # i32[mask_words(vocabulary)]: a bit for each token that may be sampled, the lowest of a word first.
    mask: Array | None = field(default=None, compare=False)


class SampledToken(NamedTuple):
    """A token and its log probability by the unchanged logits at temperature 1; NaN if it was not asked for.

    `top_logprobs` holds the most probable tokens with their log probabilities, if they were requested. A negative token
    means that none could be sampled: see `logits_error`.
    """

    token: int
    logprob: float
    top_logprobs: tuple[tuple[int, float], ...] = ()


def row_sampling_params(settings: SamplingParams, step: int) -> RowSamplingParams:
    """Return the parameters of a request's token number `step`, without what depends on the tokens before it."""
    return RowSamplingParams(
        temperature=settings.temperature,
        top_k=settings.top_k,
        top_p=settings.top_p,
        min_p=settings.min_p,
        seed=settings.seed,
        step=step,
        logprob=settings.logprobs,
        top_logprobs=settings.top_logprobs,
    )


def pack(rows: Sequence[RowSamplingParams], adjustment_words: int | None = None) -> tuple[Any, ...]:
    """Return the sampler's inputs: the words of all rows, the number of logit adjustments, and the features in use.

    `adjustment_words` is the number of words beside the fixed ones, where the plan has one size for them.
    """
    adjustments = sum(len(row.logit_adjustments) for row in rows if row.logit_adjustments is not None)
    masks = sum(len(row.mask) for row in rows if row.mask is not None)
    first = len(rows) * len(SAMPLING_WORDS)
    features = FEATURE_TOP_LOGPROBS if any(row.top_logprobs for row in rows) else 0
    if adjustments or masks or (features and adjustment_words is not None):
        features |= FEATURE_ADJUSTMENTS
    count = first + padded_words(4 * adjustments + masks)
    if adjustment_words is not None and features:
        count = adjustment_words
    if count < first + 4 * adjustments + masks:
        raise InputError(
            argument="logit adjustments and masks",
            expected=f"at most {count} words, as planned",
            got=f"{adjustments} adjustments and {masks} words of masks",
        )
    data = bytearray(4 * count)
    for at, p in enumerate(rows):
        _ROW.pack_into(data, at * _ROW.size, p.temperature, p.top_k, p.top_p, p.min_p, p.seed, p.step, NO_MASK, 0)
    words = np.frombuffer(data, np.int32)
    if adjustments or masks:
        _put_adjustments(rows, words[first : first + 4 * adjustments].reshape(adjustments, 4))
        _put_masks(rows, words, first + 4 * adjustments)
    return words, adjustments, features


def _put_adjustments(rows: Sequence[RowSamplingParams], quads: Array) -> None:
    at = 0
    for number, row in enumerate(rows):
        if row.logit_adjustments is not None:
            end = at + len(row.logit_adjustments)
            quads[at:end, 0] = number
            quads[at:end, 1:] = row.logit_adjustments
            at = end


def _put_masks(rows: Sequence[RowSamplingParams], words: Array, at: int) -> None:
    for number, row in enumerate(rows):
        if row.mask is not None:
            end = at + len(row.mask)
            words[at:end] = row.mask.view(np.int32)
            words[number * len(SAMPLING_WORDS) + SAMPLING_WORDS.index("mask")] = at
            at = end


def sampler_outputs(rows: Sequence[RowSamplingParams]) -> tuple[int, ...]:
    """Return the indices of the sampler's outputs that `unpack` needs for these rows."""
    if any(row.top_logprobs for row in rows):
        return (TOKEN, LOGPROB, TOP_TOKENS, TOP_LOGPROBS)
    return (TOKEN, LOGPROB) if any(row.logprob for row in rows) else (TOKEN,)


def unpack(outputs: Sequence[Any]) -> list[SampledToken]:
    """Return the sampled token of each row. If one row asks for top_logprobs, all rows get as many."""
    tokens = outputs[0].tolist()
    log_probabilities = outputs[1].tolist() if len(outputs) > 1 else [math.nan] * len(tokens)
    if len(outputs) < 4:
        return list(map(SampledToken, tokens, log_probabilities))
    top_logprobs = [
        tuple(pair for pair in zip(*row, strict=True) if pair[0] >= 0)
        for row in zip(outputs[2].tolist(), outputs[3].tolist(), strict=True)
    ]
    return list(map(SampledToken, tokens, log_probabilities, top_logprobs))


def logits_error(mark: int, position: int) -> LogitsError:
    """Return the error that a negative number in place of a token stands for."""
    reason = "are minus infinity for every allowed token" if mark == ALL_HIDDEN else "contain NaN or infinity"
    return LogitsError(
        f"no token can be sampled: the logits after position {position} {reason}",
        hint="Weights or inputs may exceed the range of the program's dtype: run `webpte compare` to find the first "
        "call whose result is not finite.",
        code="all_hidden" if mark == ALL_HIDDEN else "not_finite",
    )


INITIAL_ADJUSTMENTS = 256  # rows of the table at first; it doubles
DRY_BASE = 1.75  # by which the penalty grows with each repeated token
MAX_DRY_PENALTY = 100.0


class RepeatedSuffix:
    """Finds earlier occurrences of an answer's last tokens, and what followed them."""

    def __init__(self) -> None:
        self._tokens: Array = np.zeros(INITIAL_ADJUSTMENTS, np.int32)
        # For each position but the last: how many tokens up to it equal the last ones of the answer.
        self._lengths: Array = np.zeros(INITIAL_ADJUSTMENTS, np.int32)
        self._count = 0

    @property
    def longest(self) -> int:
        """Return the length of the longest suffix that occurs earlier; the two may overlap."""
        return int(self._lengths[: self._count].max(initial=0))

    def add(self, token: int) -> None:
        count = self._count
        if count == len(self._tokens):
            self._tokens = np.concatenate([self._tokens, np.zeros_like(self._tokens)])
            self._lengths = np.concatenate([self._lengths, np.zeros_like(self._lengths)])
        before = np.concatenate([np.zeros(min(count, 1), np.int32), self._lengths[: max(0, count - 1)]])
        self._lengths[:count] = np.where(self._tokens[:count] == token, before + 1, 0)
        self._tokens[count] = token
        self._count += 1

    def followers(self, min_length: int) -> tuple[Array, Array]:
        """Return the distinct tokens that followed suffixes of at least `min_length`, and the longest suffix of each.

        An answer that repeats one token has as many such places as tokens: no Python code runs for each.
        """
        positions = np.flatnonzero(self._lengths[: self._count] >= min_length)
        tokens, places = np.unique(self._tokens[positions + 1], return_inverse=True)
        longest = np.zeros(len(tokens), np.int32)
        np.maximum.at(longest, places, self._lengths[positions])
        return tokens, longest

    def copy(self) -> RepeatedSuffix:
        other = copy.copy(self)
        other._tokens, other._lengths = self._tokens.copy(), self._lengths.copy()
        return other


class LogitsProcessor:
    """Tracks the tokens of a request, as far as its penalties need them, and returns the parameters of its next token.

    If there are more than `max_adjustments` distinct tokens, the penalties of the most recently first-seen ones apply.
    """

    def __init__(
        self, settings: SamplingParams, prompt: Iterable[int] = (), max_adjustments: int = MAX_LOGIT_ADJUSTMENTS
    ) -> None:
        self._settings = settings
        self._max_adjustments = max_adjustments
        self._first = row_sampling_params(settings, 0)
        penalties = (settings.repetition_penalty, settings.presence_penalty, settings.frequency_penalty)
        self._has_penalties = penalties != (1, 0, 0)
        self._repeated = RepeatedSuffix() if settings.dry_multiplier else None
        self._counts: dict[int, int] = {}  # of generated tokens; 0 for those that are only in the prompt
        self._rows: dict[int, int] = {}  # token -> row of the table
        self._table: Array = np.zeros((INITIAL_ADJUSTMENTS, 3), np.int32)  # see RowSamplingParams.logit_adjustments
        for token in settings.logit_bias:
            self._adjust(token)
        if settings.repetition_penalty != 1:
            for token in dict.fromkeys(prompt):
                self._counts[token] = 0
                self._adjust(token)

    @property
    def num_static(self) -> int | None:
        """Return for how many of the next tokens the parameters are the same except for their step; None: for all."""
        if self._has_penalties:
            return 1
        if self._repeated is not None:  # a token lengthens a repeated suffix by at most one
            return max(1, self._settings.dry_allowed_length - self._repeated.longest)
        return None

    def add(self, token: int) -> None:
        """Record a generated token."""
        if self._has_penalties:
            self._counts[token] = self._counts.get(token, 0) + 1
            self._adjust(token)
        if self._repeated is not None:
            self._repeated.add(token)

    def params(self, step: int, mask: Array | None = None) -> RowSamplingParams:
        """Return the parameters of token number `step`."""
        adjustments = self._table[: len(self._rows)].copy() if self._rows else None
        if self._repeated is not None:
            adjustments = self._with_dry(adjustments, *self._repeated.followers(self._settings.dry_allowed_length))
        return replace(self._first, step=step, logit_adjustments=adjustments, mask=mask)

    def draft_params(self, step: int, drafts: Sequence[int], masks: Sequence[Array | None]) -> list[RowSamplingParams]:
        """Return the parameters of token number `step` and of the token after each draft, which is not recorded. There
        is a mask for each."""
        processor = self._copy() if drafts and self.num_static is not None else self
        rows = [processor.params(step, masks[0])]
        for number, (token, mask) in enumerate(zip(drafts, masks[1:], strict=True), 1):
            if processor is not self:
                processor.add(token)
            rows.append(processor.params(step + number, mask))
        return rows

    def _copy(self) -> LogitsProcessor:
        other = copy.copy(self)
        other._counts, other._rows, other._table = self._counts.copy(), self._rows.copy(), self._table.copy()
        other._repeated = self._repeated.copy() if self._repeated is not None else None
        return other

    def _with_dry(self, adjustments: Array | None, tokens: Array, lengths: Array) -> Array | None:
        """Return adjustments with the penalties of tokens that would lengthen a repetition."""
        if not len(tokens):
            return adjustments
        table = adjustments if adjustments is not None else np.zeros((0, 3), np.int32)
        new = tokens[~np.isin(tokens, table[:, 0])][: self._max_adjustments - len(table)]
        rows = np.zeros((len(new), 3), np.int32)
        rows[:, 0] = new
        rows.view(np.float32)[:, 1] = 1.0
        table = np.concatenate([table, rows])
        places = np.searchsorted(tokens, table[:, 0])  # `tokens` are sorted
        places[places == len(tokens)] = 0
        penalized = tokens[places] == table[:, 0]
        table.view(np.float32)[penalized, 2] -= self._dry_penalties(lengths)[places[penalized]]
        return table

    def _dry_penalties(self, lengths: Array) -> Array:
        exponents = np.minimum(lengths - self._settings.dry_allowed_length, 64)
        penalties: Array = np.minimum(self._settings.dry_multiplier * DRY_BASE**exponents, MAX_DRY_PENALTY)
        return penalties

    def _adjust(self, token: int) -> None:
        """Update a token's row of the table."""
        settings = self._settings
        row = self._rows.get(token)
        if row is None:
            row = self._allocate(token)
        count = self._counts.get(token)
        addend = settings.logit_bias.get(token, 0.0)
        if count:
            addend -= settings.presence_penalty + settings.frequency_penalty * count
        floats = self._table.view(np.float32)
        self._table[row, 0] = token
        floats[row, 1] = 1.0 if count is None else settings.repetition_penalty
        floats[row, 2] = addend

    def _allocate(self, token: int) -> int:
        """Return a row for a token that has none."""
        row = len(self._rows)
        if row == self._max_adjustments:
            oldest = next(each for each in self._rows if each not in self._settings.logit_bias)
            row = self._rows.pop(oldest)
        elif row == len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])
        self._rows[token] = row
        return row
