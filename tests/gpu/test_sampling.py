"""Draws on the device follow the distribution that NumPy computes, and what cannot be drawn from is said to be so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import webpte
from tests.cases.sampling.sampling import sample
from tests.support.harness.cases import OneOp, T, choosing, reference
from tests.support.harness.chi_square import assert_follows, chi_square_limit
from tests.support.harness.gate import slow, slow_but
from webpte.llm.sampling import RowSamplingParams, pack
from webpte.ops.sampling.sampling import ALL_HIDDEN, UNUSABLE, _gumbel, _gumbel_of, _hash, _keys, kept

DRAWS, VOCABULARY = 20_000, 61
INFINITY = np.inf


def probabilities(logits, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    scores = (logits - logits.max()).astype(np.float64) / temperature
    weights = np.where(kept(scores[None], top_k, top_p, min_p)[0], np.exp(scores), 0)
    return weights / weights.sum()


def logits_of(rows):
    return T(*rows.shape, make=lambda dims: rows, dtype="f16" if rows.dtype == np.float16 else "f32")


def drawn(folder, rows, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=77, step=3, variant=""):
    """What the device draws for rows of logits, a step further in each: tokens and log probabilities."""
    choices = [RowSamplingParams(temperature, top_k, top_p, min_p, seed, step + i) for i in range(len(rows))]
    return ran(folder, rows, choices, variant)[0]


def ran(folder, rows, choices, variant=""):
    """What the device and the reference give for rows of logits."""
    program = OneOp(sample(logits_of(rows), choices, sizes=(len(rows),)))
    program.write(folder / "p.pte")
    arrays = [np.ascontiguousarray(rows), pack(choices)[0]]
    with choosing(variant), webpte.load(folder / "p.pte") as loaded:
        return loaded.method().run(arrays), reference(program.case, program.substitute(arrays, {}))


@pytest.mark.parametrize(
    "filters",
    [
        (1.0, 0, 1.0),
        *map(slow, [(0.7, 0, 1.0), (1.5, 8, 1.0), (1.0, 0, 0.7), (1.2, 20, 0.9), (1.5, 0, 1.0, 0.1)]),
        (2.0, 9, 0.9, 0.2),
    ],
    ids=str,
)
def test_frequencies_pass_a_chi_square_test(tmp_path, filters):
    logits = np.random.default_rng(4).normal(0, 2, VOCABULARY).astype(np.float32)
    rows = np.broadcast_to(logits, (DRAWS, VOCABULARY))
    tokens, *_ = drawn(tmp_path, rows, *filters)
    counts = np.bincount(tokens, minlength=VOCABULARY)
    assert_follows(counts, probabilities(logits, *filters) * DRAWS)


@pytest.mark.slow
def test_sampling_million_draws_follow_probabilities(tmp_path):
    """Down to one in 50,000: 20 draws of a million."""
    draws, vocabulary = 1_000_000, 9
    logits = np.linspace(0, np.log(5e-5), vocabulary).astype(np.float32)
    tokens, *_ = drawn(tmp_path, np.broadcast_to(logits, (draws, vocabulary)))
    assert_follows(np.bincount(tokens, minlength=vocabulary), probabilities(logits) * draws)


def test_sampling_chi_square_detects_wrong_distribution():
    """Uniform draws against a peaked distribution are far beyond the limit."""
    expected = np.array([0.5, 0.3, 0.2]) * DRAWS
    counts = np.full(3, DRAWS / 3)
    assert ((counts - expected) ** 2 / expected).sum() > chi_square_limit(2)


# -- the ends of the noise ---------------------------------------------------------------------------------------------


def unhash(value: int) -> int:
    """Return the number whose hash is `value`: every step of the hash can be undone."""
    word = value ^ (value >> 22)
    word = word * pow(277803737, -1, 2**32) % 2**32
    shift = (word >> 28) + 4
    state = word
    for _ in range(32 // shift):
        state = word ^ (state >> shift)
    return (state - 2891336453) * pow(747796405, -1, 2**32) % 2**32


def seed_for(bits: int, token: int, step: int) -> int:
    """Return the seed with which the noise of `token` in row 0 is made of `bits`."""
    seed = unhash(unhash(unhash(unhash(bits) ^ token)) ^ step)
    return seed - 2**32 if seed >= 2**31 else seed


EXTREMES = [0, 1, 2, 2**8 - 1, 2**9, 2**23, 2**31, 2**32 - 2**9, 2**32 - 2**8, 2**32 - 129, 2**32 - 2, 2**32 - 1]


@pytest.mark.parametrize("bits", slow_but([0, 2**31, 2**32 - 129, 2**32 - 1], EXTREMES), ids=hex)
def test_sampling_extreme_noise_bits_are_finite(tmp_path, bits):
    """Two tokens can be drawn; the logit of one is set so that its noise only just wins, and only just loses."""
    token, other, step = 5, 7, 3
    seed = seed_for(bits, token, step)
    key = _keys(np.array([seed]), np.array([step]))
    assert _hash(key ^ np.uint32(token)).tolist() == [bits]
    noise = _gumbel(key, 16)[0]
    assert noise[token] == _gumbel_of(np.array([bits], np.uint32))[0] and -3 < noise[token] < 23
    rows = np.full((1, 16), -100, np.float32)
    for margin, winner in ((0.01, token), (-0.01, other)):
        rows[0, token], rows[0, other] = noise[other] - noise[token] + margin, 0
        assert drawn(tmp_path, rows, seed=seed, step=step)[0][0] == winner


@pytest.mark.parametrize(("vocabulary", "rows"), [(49_152, 64), pytest.param(262_144, 12, marks=pytest.mark.slow)])
def test_sampling_near_certain_token_is_always_drawn(tmp_path, vocabulary, rows):
    """Noise that could be infinite drew any token whatever; a seed makes it so for one in row 0."""
    logits = np.zeros((rows, vocabulary), np.float32)
    logits[:, 1234] = np.log(vocabulary / 7e-7)
    for unlikely in (0, 5, vocabulary - 1):
        tokens, *_ = drawn(tmp_path, logits, seed=seed_for(2**32 - 1, unlikely, 3))
        assert (tokens == 1234).all()


# -- long tails --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", slow_but(["narrow"], ["narrow", "wide"]))
@pytest.mark.parametrize(("vocabulary", "below"), [(49_152, 11.9), pytest.param(120_001, 12.8, marks=pytest.mark.slow)])
def test_sampling_long_tail_drawn_by_weight(tmp_path, vocabulary, below, variant):
    """Tokens of which each is next to nothing beside the most probable, and all together a quarter."""
    logits = np.full(vocabulary, -below, np.float32) + np.random.default_rng(1).uniform(-0.1, 0.1, vocabulary)
    logits = logits.astype(np.float32)
    logits[77] = 0
    for top_p in (0.9, 0.99):
        expected = probabilities(logits, 1.0, 0, top_p)
        tokens, *_ = drawn(tmp_path, np.broadcast_to(logits, (100, vocabulary)), top_p=top_p, variant=variant)
        tail = (tokens != 77).sum()
        want = 100 * (1 - expected[77])
        assert 15 < want < 50 and abs(tail - want) < 5 * np.sqrt(want)
        assert logits[tokens].min() >= logits[expected > 0].min() - 1e-4


def test_long_tails_give_the_tokens_of_the_reference(tmp_path):
    logits = (-np.abs(np.random.default_rng(2).normal(0, 5, (16, 5003)))).astype(np.float32)
    filters = ((1.0, 0, 0.999, 0.0), (2.5, 0, 0.95, 0.0), (1.0, 4000, 0.99, 0.0), (2.5, 4000, 0.99, 1e-4))
    actual, want = ran(
        tmp_path, logits, [replace(RowSamplingParams(*filters[i % 4]), seed=i, step=i % 3) for i in range(16)]
    )
    assert (actual[0] == want[0]).all()


# -- what cannot be drawn from -----------------------------------------------------------------------------------------

NEGATIVE_NAN = np.array([0xFFC00001], np.uint32).view(np.float32)[0]
HOPELESS: dict[str, tuple[list[tuple[Any, float]], int]] = {
    "one NaN": ([(700, np.nan)], UNUSABLE),
    "a negative NaN": ([(3, NEGATIVE_NAN)], UNUSABLE),
    "infinity": ([(0, INFINITY)], UNUSABLE),
    "NaN among hidden tokens": ([(slice(None), -INFINITY), (9, np.nan)], UNUSABLE),
    "all hidden": ([(slice(None), -INFINITY)], ALL_HIDDEN),
}


@pytest.mark.parametrize("filters", [(0.0, 0, 1.0, 0.0), (1.0, 0, 1.0, 0.0), (0.8, 40, 0.9, 0.1)], ids=str)
@pytest.mark.parametrize("vocabulary", [1009, 2056])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_sampling_hopeless_rows_choose_nothing(tmp_path, filters, vocabulary, dtype):
    rows = np.random.default_rng(3).normal(0, 2, (len(HOPELESS) + 2, vocabulary)).astype(dtype)
    for row, (changes, _) in zip(rows, HOPELESS.values(), strict=False):
        for where, value in changes:
            row[where] = value
    rows[-2] = -INFINITY
    rows[-2, 41] = -3  # one token is left
    choices = [replace(RowSamplingParams(*filters), seed=1, step=2)] * len(rows)
    (tokens, log_probabilities, *_), (want, expected, *_) = ran(tmp_path, rows, choices)
    assert tokens.tolist() == want.tolist()
    assert tokens[:-2].tolist() == [token for _, token in HOPELESS.values()] and tokens[-2] == 41
    assert np.isnan(log_probabilities[:-2]).all() and np.isfinite(log_probabilities[-2:]).all()
    assert np.allclose(log_probabilities[-2:], expected[-2:], atol=1e-4)
