"""Which texts are computed together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webpte.embed.embedder import FINE_STEPS_MIN_BATCHES, MIN_FILL, batch_rows, batches, padded_length

LENGTHS = st.lists(st.integers(1, 256), max_size=200)


@given(LENGTHS, st.integers(1, 40))
def test_embedding_batches_hold_each_text_once_within_limits(lengths, most_rows):
    results = list(batches(lengths, most_rows, 256))
    assert sorted(number for numbers, _ in results for number in numbers) == list(range(len(lengths)))
    for numbers, tokens in results:
        assert 1 <= len(numbers) <= most_rows and max(lengths[n] for n in numbers) <= tokens <= 256
        finer = 2 if len(lengths) >= FINE_STEPS_MIN_BATCHES * most_rows else 1
        assert all(lengths[n] >= MIN_FILL * tokens or padded_length(lengths[n], 256, finer) == tokens for n in numbers)


def test_embedding_batches_of_many_texts_have_little_padding():
    lengths = np.random.default_rng(0).lognormal(3.2, 0.7, 5000).clip(3, 256).astype(int).tolist()
    results = list(batches(lengths, 32, 256))
    tokens = sum(len(numbers) * length for numbers, length in results)
    assert sum(lengths) / tokens > 0.94
    assert len(results) < 1.1 * len(lengths) / 32
    assert len({(len(numbers), length) for numbers, length in results}) < 60


@pytest.mark.parametrize("mean", [2.0, 2.5, 3.2])
def test_embedding_batches_of_one_block_pad_less_than_an_eighth(mean):
    """As `webpte batch` computes them: 1,024 at a time."""
    lengths = (np.random.default_rng(1).lognormal(mean, 0.6, 1024) + 2).clip(3, 256).astype(int).tolist()
    tokens = sum(len(numbers) * length for numbers, length in batches(lengths, 32, 256))
    assert 1 - sum(lengths) / tokens < 0.12


def test_shapes_are_few():
    assert {padded_length(n, 256) for n in range(1, 257)} == {
        *range(4, 33, 4), *range(40, 65, 8), *range(80, 129, 16), *range(160, 257, 32)
    }  # fmt: skip
    assert [padded_length(n, 18) for n in (1, 8, 9, 17, 18)] == [4, 8, 12, 18, 18]
    assert {batch_rows(n, 20) for n in range(1, 21)} == {1, 2, 3, 4, 6, 8, 12, 16, 20}


@pytest.mark.parametrize("length", range(1, 257))
def test_padded_length_rounds_up_at_most_a_fifth(length):
    assert padded_length(length, 256) - length < max(4, padded_length(length, 256) / 5 + 1)
