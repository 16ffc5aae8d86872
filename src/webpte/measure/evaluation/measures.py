"""Measures of next-token distributions: log-probabilities (N, V), one row for each predicted token.

A text of any length is split into windows that fit the context of a model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ...errors import InputError
from ...text import plural
from ...typing import Array


class Estimate(NamedTuple):
    """A mean over tokens and its standard error, as if tokens were independent."""

    value: float
    error: float


def log_softmax(logits: Array) -> Array:
    """Return natural log-probabilities along the last dim, in f64. Raise LogitsError for rows without a finite logit.

    A logit of minus infinity is an impossible token.
    """
    wide = np.asarray(logits, np.float64)
    largest = wide.max(axis=-1, keepdims=True)  # (N, 1); NaN if any is
    if not np.isfinite(largest).all():
        raise _logits_error(wide, largest)
    shifted = wide - largest
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def kl(reference: Array, other: Array) -> Array:
    """Return KL(reference ‖ other) of each row, in nats: (N, V), (N, V) -> (N,)."""
    shares = np.exp(reference)
    with np.errstate(invalid="ignore"):  # a token that is impossible in both is minus infinity less itself
        terms = np.where(shares > 0, shares * (reference - other), 0.0)
    result: Array = terms.sum(axis=-1)
    return result


def losses(predicted: Array, targets: Array) -> Array:
    """Return the negative log-likelihood of each target token in nats: (N, V), (N,) -> (N,)."""
    result: Array = -np.take_along_axis(predicted, np.asarray(targets, np.int64)[:, None], axis=-1)[:, 0]
    return result


def agreement(reference: Array, other: Array) -> Array:
    """Return 1 where the most likely token is the same, else 0: (N, V), (N, V) -> (N,)."""
    result: Array = (reference.argmax(axis=-1) == other.argmax(axis=-1)).astype(np.float64)
    return result


def mean(values: Array) -> Estimate:
    """Return mean and standard error. The error of one value is infinite."""
    count = len(values)
    error = float(np.std(values, ddof=1) / math.sqrt(count)) if count > 1 else math.inf
    return Estimate(float(np.mean(values)), error)


def perplexity(values: Array) -> Estimate:
    """Return the exponential of the mean loss."""
    average = mean(values)
    value = float(np.exp(average.value))
    return Estimate(value, value * average.error)


@dataclass
class Predictions:
    """The losses of a model, added chunk by chunk."""

    _losses: list[Array] = field(default_factory=list)

    def add(self, logits: Array, targets: Array) -> Array:
        """Add logits (N, V) and target tokens (N,); return the log-probabilities."""
        predicted = log_softmax(logits)
        self._losses.append(losses(predicted, targets))
        return predicted

    @property
    def tokens(self) -> int:
        return sum(map(len, self._losses))

    def perplexity(self) -> Estimate:
        return perplexity(np.concatenate(self._losses))


class Quality(NamedTuple):
    """The difference between a model and its reference."""

    tokens: int  # predicted
    kl: Estimate  # KL(reference ‖ model), nats per token
    agreement: Estimate  # share of positions with the same most likely token
    reference_perplexity: Estimate
    perplexity: Estimate


@dataclass
class ModelComparison:
    """A model and its reference, added chunk by chunk."""

    reference: Predictions = field(default_factory=Predictions)
    model: Predictions = field(default_factory=Predictions)
    _kl: list[Array] = field(default_factory=list)
    _same: list[Array] = field(default_factory=list)

    def add(self, reference_logits: Array, logits: Array, targets: Array) -> None:
        """Add the logits of both, (N, V), and the target tokens, (N,)."""
        expected = self.reference.add(reference_logits, targets)
        predicted = self.model.add(logits, targets)
        self._kl.append(kl(expected, predicted))
        self._same.append(agreement(expected, predicted))

    def result(self) -> Quality:
        """Return the measures of all chunks."""
        return Quality(
            self.model.tokens,
            mean(np.concatenate(self._kl)),
            mean(np.concatenate(self._same)),
            self.reference.perplexity(),
            self.model.perplexity(),
        )


def _logits_error(logits: Array, largest: Array) -> Exception:
    from ...errors import LogitsError  # only errors need it, and it imports the whole package

    bad = ~np.isfinite(largest[..., 0])
    row = int(np.flatnonzero(bad)[0])
    nans = int(np.isnan(logits.reshape(-1, logits.shape[-1])[row]).sum())
    reason = f"{nans} of {logits.shape[-1]} logits are NaN" if nans else f"the largest logit is {largest.flat[row]}"
    return LogitsError(
        f"{int(bad.sum())} of {plural(bad.size, 'row')} have no distribution: in row {row}, {reason}",
        hint="webpte compare names the op at fault.",
        code="not_finite",
    )


# -- windows ----------------------------------------------------------------------------------------------------------


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
