"""Measures of next-token distributions: log-probabilities (N, V), one row for each token that is predicted."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


class Estimate(NamedTuple):
    """A mean over tokens and its standard error, as if tokens were drawn one by one."""

    value: float
    error: float


def log_softmax(logits: Array) -> Array:
    """Natural log-probabilities along the last dim, in f64; raises LogitsError where there are none.

    A logit of minus infinity is a token that cannot be.
    """
    wide = np.asarray(logits, np.float64)
    largest = wide.max(axis=-1, keepdims=True)  # (N, 1); NaN if any is
    if not np.isfinite(largest).all():
        raise _logits_error(wide, largest)
    shifted = wide - largest
    result: Array = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def kl(reference: Array, other: Array) -> Array:
    """KL(reference ‖ other) of each row, in nats: (N, V), (N, V) -> (N,)."""
    shares = np.exp(reference)
    with np.errstate(invalid="ignore"):  # a token that neither gives is minus infinity less itself
        terms = np.where(shares > 0, shares * (reference - other), 0.0)
    result: Array = terms.sum(axis=-1)
    return result


def losses(predicted: Array, targets: Array) -> Array:
    """How unlikely each token was that came, in nats: (N, V), (N,) -> (N,)."""
    result: Array = -np.take_along_axis(predicted, np.asarray(targets, np.int64)[:, None], axis=-1)[:, 0]
    return result


def agreement(reference: Array, other: Array) -> Array:
    """Whether the likeliest token is the same, as 0 and 1: (N, V), (N, V) -> (N,)."""
    result: Array = (reference.argmax(axis=-1) == other.argmax(axis=-1)).astype(np.float64)
    return result


def mean(values: Array) -> Estimate:
    """Of one token there is no error to tell: it is infinite."""
    count = len(values)
    error = float(np.std(values, ddof=1) / math.sqrt(count)) if count > 1 else math.inf
    return Estimate(float(np.mean(values)), error)


def perplexity(values: Array) -> Estimate:
    """The exponential of the mean loss: as if the model had chosen among so many tokens alike each time."""
    average = mean(values)
    found = float(np.exp(average.value))
    return Estimate(found, found * average.error)


@dataclass
class Predictions:
    """The losses of one model, a piece of the text at a time."""

    _losses: list[Array] = field(default_factory=list)

    def add(self, logits: Array, targets: Array) -> Array:
        """Logits (N, V) and the tokens that came (N,); gives the log-probabilities."""
        predicted = log_softmax(logits)
        self._losses.append(losses(predicted, targets))
        return predicted

    @property
    def tokens(self) -> int:
        return sum(map(len, self._losses))

    def perplexity(self) -> Estimate:
        return perplexity(np.concatenate(self._losses))


class Quality(NamedTuple):
    """How a model differs from the one it was made of."""

    tokens: int  # that were predicted
    kl: Estimate  # KL(reference ‖ model), nats a token
    agreement: Estimate  # share of tokens where both find the same one likeliest
    reference_perplexity: Estimate
    perplexity: Estimate


@dataclass
class ModelComparison:
    """A model beside its reference, a piece of the text at a time."""

    reference: Predictions = field(default_factory=Predictions)
    model: Predictions = field(default_factory=Predictions)
    _kl: list[Array] = field(default_factory=list)
    _same: list[Array] = field(default_factory=list)

    def add(self, reference_logits: Array, logits: Array, targets: Array) -> None:
        """Logits of both, (N, V), and the tokens that came, (N,)."""
        expected = self.reference.add(reference_logits, targets)
        found = self.model.add(logits, targets)
        self._kl.append(kl(expected, found))
        self._same.append(agreement(expected, found))

    def result(self) -> Quality:
        return Quality(
            self.model.tokens,
            mean(np.concatenate(self._kl)),
            mean(np.concatenate(self._same)),
            self.reference.perplexity(),
            self.model.perplexity(),
        )


def _logits_error(logits: Array, largest: Array) -> Exception:
    from ...llm.errors import LogitsError  # only on the way to an error: it brings the whole room along

    bad = ~np.isfinite(largest[..., 0])
    row = int(np.flatnonzero(bad)[0])
    nans = int(np.isnan(logits.reshape(-1, logits.shape[-1])[row]).sum())
    found = f"{nans} of {logits.shape[-1]} logits are NaN" if nans else f"the largest logit is {largest.flat[row]}"
    return LogitsError(
        f"nothing can be predicted in {int(bad.sum())} of {bad.size} rows: in row {row}, {found}. "
        "webpte compare names the op it comes from.",
        code="not_finite",
    )
