"""Measures of next-token distributions: log-probabilities (N, V), one row for each predicted token."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from ...text import plural

Array = np.ndarray[Any, Any]


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
    from ...llm.errors import LogitsError  # only errors need it, and it imports the whole package

    bad = ~np.isfinite(largest[..., 0])
    row = int(np.flatnonzero(bad)[0])
    nans = int(np.isnan(logits.reshape(-1, logits.shape[-1])[row]).sum())
    reason = f"{nans} of {logits.shape[-1]} logits are NaN" if nans else f"the largest logit is {largest.flat[row]}"
    return LogitsError(
        f"{int(bad.sum())} of {plural(bad.size, 'row')} have no distribution: in row {row}, {reason}",
        hint="webpte compare names the op at fault.",
        code="not_finite",
    )
