"""Draws on the device follow the distribution that NumPy computes."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.cases import OneOp, T, case
from webpte.ops.sampling import _kept

DRAWS, VOCABULARY = 20_000, 61


def probabilities(logits, temperature, top_k, top_p):
    scores = (logits - logits.max()).astype(np.float64)[None] / temperature
    weights = np.where(_kept(scores, top_k, top_p), np.exp(scores), 0)[0]
    return weights / weights.sum()


def chi_square_limit(degrees: int) -> float:
    """The value that chance exceeds once in 10,000 runs, by Wilson and Hilferty's approximation."""
    return degrees * (1 - 2 / (9 * degrees) + 3.719 * np.sqrt(2 / (9 * degrees))) ** 3


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.5, 8, 1.0), (1.0, 0, 0.7), (1.2, 20, 0.9)],
)
def test_frequencies_pass_a_chi_square_test(tmp_path, temperature, top_k, top_p):
    logits = np.random.default_rng(4).normal(0, 2, VOCABULARY).astype(np.float32)
    rows = T(DRAWS, VOCABULARY, make=lambda dims: np.broadcast_to(logits, dims))
    OneOp(case("webpte.sample", rows, temperature, top_k, top_p, 77, 3)).write(tmp_path / "p.pte")
    with webpte.load(tmp_path / "p.pte") as program:
        tokens, _ = program.method()(np.ascontiguousarray(np.broadcast_to(logits, (DRAWS, VOCABULARY))))
    expected = probabilities(logits, temperature, top_k, top_p) * DRAWS
    counts = np.bincount(tokens, minlength=VOCABULARY)
    assert counts[expected == 0].sum() == 0, "a token that top-k or top-p excludes was drawn"
    common = expected >= 5  # the test's own condition; rarer tokens are counted together
    pooled = [np.append(v[common], v[~common].sum()) for v in (counts.astype(float), expected)]
    kept = pooled[1] > 0
    statistic = (((pooled[0] - pooled[1]) ** 2)[kept] / pooled[1][kept]).sum()
    assert statistic < chi_square_limit(int(kept.sum()) - 1)


def test_the_test_can_fail():
    """Uniform draws against a peaked distribution are far beyond the limit."""
    expected = np.array([0.5, 0.3, 0.2]) * DRAWS
    counts = np.full(3, DRAWS / 3)
    assert ((counts - expected) ** 2 / expected).sum() > chi_square_limit(2)
