"""Penalties and biases, kept processor of token by token, are what their definitions say of all tokens at once."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.work import executed_lines
from webpte.fusion.llm_rewrites import FEATURE_ADJUSTMENTS, FEATURE_TOP_LOGPROBS, SAMPLING_WORDS, mask_words
from webpte.llm.sampling import LogitsProcessor, RowSamplingParams, pack, unpack
from webpte.llm.settings import SamplingParams, sampling_params_from

VOCABULARY = 40
TOKENS = st.lists(st.integers(0, VOCABULARY - 1), max_size=30)
ASKED = st.builds(
    SamplingParams,
    repetition_penalty=st.sampled_from([1.0, 1.3, 0.5]),
    presence_penalty=st.sampled_from([0.0, 0.5, -1.0]),
    frequency_penalty=st.sampled_from([0.0, 0.25]),
    logit_bias=st.dictionaries(st.integers(0, VOCABULARY - 1), st.sampled_from([-100.0, 2.5]), max_size=4),
)
LOGITS = np.random.default_rng(1).normal(0, 4, VOCABULARY).astype(np.float32)


def by_definition(logits, settings, prompt, answer):
    changed = logits.astype(np.float64)
    for token in {*prompt, *answer}:
        penalty = settings.repetition_penalty
        changed[token] = changed[token] / penalty if changed[token] > 0 else changed[token] * penalty
    for token, count in Counter(answer).items():
        changed[token] -= settings.presence_penalty + settings.frequency_penalty * count
    for token, bias in settings.logit_bias.items():
        changed[token] += bias
    return changed


def by_edits(logits, edits):
    changed = logits.astype(np.float64)
    for edit in () if edits is None else edits:
        factor, addend = edit[1:].view(np.float32).astype(np.float64)
        x = changed[edit[0]]
        changed[edit[0]] = (x / factor if x > 0 else x * factor) + addend
    return changed


@given(ASKED, TOKENS, TOKENS, TOKENS)
def test_logit_adjustments_follow_settings(settings, prompt, answer, drafted):
    processor = LogitsProcessor(settings, prompt)
    for token in answer:
        processor.add(token)
    ahead = processor.draft_params(7 - len(drafted), drafted, [None] * (len(drafted) + 1))[-1]
    choice = processor.params(len(answer))
    for actual, tokens in ((choice, answer), (ahead, answer + drafted)):
        want = by_definition(LOGITS, settings, prompt, tokens)
        assert np.allclose(by_edits(LOGITS, actual.logit_adjustments), want, atol=1e-4)
        assert actual.logit_adjustments is None or len(set(actual.logit_adjustments[:, 0].tolist())) == len(
            actual.logit_adjustments
        )
    assert (choice.step, ahead.step) == (len(answer), 7)
    if processor.num_static is None:
        assert pack([choice])[0][8:].tolist() == pack([LogitsProcessor(settings).params(0)])[0][8:].tolist()


def test_logits_processor_earlier_parameters_do_not_change_later():
    processor = LogitsProcessor(SamplingParams(frequency_penalty=1.0))
    processor.add(3)
    before = processor.params(1)
    processor.add(3)
    assert before.logit_adjustments is not None and before.logit_adjustments.view(np.float32)[0, 2] == -1


def test_logits_processor_without_penalties_counts_nothing():
    processor = LogitsProcessor(
        SamplingParams(temperature=0.5, top_k=3, top_p=0.9, min_p=0.1, seed=4, logprobs=True), [1, 2]
    )
    processor.add(5)
    assert processor.num_static is None and processor.params(6) == RowSamplingParams(0.5, 3, 0.9, 0.1, 4, 6, True)
    assert (
        processor.params(6).logit_adjustments is None
        and LogitsProcessor(SamplingParams(presence_penalty=0.1)).num_static == 1
    )
    assert LogitsProcessor(SamplingParams(logit_bias={1: 2.0})).num_static is None


def test_logits_processor_too_many_tokens_drops_oldest_not_biases():
    processor = LogitsProcessor(
        SamplingParams(repetition_penalty=2.0, logit_bias={9: 1.0}), [1, 2, 3, 4], max_adjustments=5
    )
    processor.add(5)
    edits = processor.params(1).logit_adjustments
    assert edits is not None and sorted(edits[:, 0].tolist()) == [2, 3, 4, 5, 9]


def test_logits_processor_more_tokens_than_capacity():
    processor = LogitsProcessor(SamplingParams(presence_penalty=1.0))
    for token in range(1000):
        processor.add(token)
    edits = processor.params(1000).logit_adjustments
    assert edits is not None and edits[:, 0].tolist() == list(range(1000))
    assert (edits.view(np.float32)[:, 1:] == [1, -1]).all()


def test_pack_row_parameters_layout():
    edits = LogitsProcessor(SamplingParams(logit_bias={7: -3.0, 2: 1.5})).params(0).logit_adjustments
    mask = np.arange(mask_words(70), dtype=np.uint32)
    rows = [
        RowSamplingParams(0.5, 4, 0.25, 0.125, 9, 11),
        RowSamplingParams(logit_adjustments=edits, top_logprobs=2),
        RowSamplingParams(mask=mask, logit_adjustments=edits),
    ]
    words, count, features = pack(rows)
    assert (count, features) == (4, FEATURE_ADJUSTMENTS | FEATURE_TOP_LOGPROBS) and len(words) == 3 * len(
        SAMPLING_WORDS
    ) + 1024
    first = dict(zip(SAMPLING_WORDS, words[:8], strict=True))
    assert [first[name].view(np.float32) for name in ("temperature", "top_p", "min_p")] == [0.5, 0.25, 0.125]
    assert [first[name] for name in ("top_k", "seed", "step", "mask")] == [4, 9, 11, -1]
    quads = words[24 : 24 + 16].reshape(4, 4)
    assert quads[:, :2].tolist() == [[1, 7], [1, 2], [2, 7], [2, 2]] and (quads[2:, 1:] == edits).all()
    place = int(words[2 * 8 + SAMPLING_WORDS.index("mask")])
    assert place == 24 + 16 and words[place : place + 3].tolist() == [0, 1, 2]


def test_pack_plain_rows_add_no_words():
    words, count, features = pack([RowSamplingParams(), RowSamplingParams(temperature=1.0)])
    assert (len(words), count, features) == (16, 0, 0)


def test_unpack_sampled_tokens():
    tokens, values = np.array([5, -2]), np.array([-0.5, np.nan])
    likeliest, theirs = np.array([[5, 1], [3, -1]]), np.array([[-0.5, -1], [-2, 0]])
    first, second = unpack([tokens, values, likeliest, theirs])
    assert first == (5, -0.5, ((5, -0.5), (1, -1.0)))
    assert second.token == -2 and second.top_logprobs == ((3, -2.0),)
    assert [result.token for result in unpack([tokens])] == [5, -2]


def test_logit_bias_token_outside_vocabulary_is_refused():
    assert sampling_params_from({"logit_bias": {127: 1}}, 128).logit_bias == {127: 1.0}
    with raises(webpte.InputError, "logit_bias", "got 128", "0 to 127", code="token_out_of_range"):
        sampling_params_from({"logit_bias": {128: 1}}, 128)


# -- repetitions ------------------------------------------------------------------------------------------------------


def dry_by_definition(tokens: list[int], allowed: int, multiplier: float) -> dict[int, float]:
    """Return the penalty of each token, from all suffixes that occur earlier."""
    penalties: dict[int, float] = {}
    for length in range(allowed, len(tokens)):
        for start in range(len(tokens) - length):
            if tokens[start : start + length] == tokens[len(tokens) - length :]:
                follower = tokens[start + length]
                penalties[follower] = max(
                    penalties.get(follower, 0.0), min(multiplier * 1.75 ** (length - allowed), 100)
                )
    return penalties


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 6), st.integers(0, 2))
def test_dry_penalties_equal_their_definition(tokens, allowed, drafts):
    settings = SamplingParams(dry_multiplier=0.8, dry_allowed_length=allowed, logit_bias={1: 2.0})
    processor = LogitsProcessor(settings)
    for token in tokens[: len(tokens) - drafts]:
        processor.add(token)
    static = processor.num_static
    drafted = tokens[len(tokens) - drafts :]
    rows = processor.draft_params(0, drafted, [None] * (len(drafted) + 1))
    adjustments = rows[-1].logit_adjustments
    assert [row.step for row in rows] == list(range(len(drafted) + 1)) and adjustments is not None
    actual = dict(zip(adjustments[:, 0].tolist(), adjustments.view(np.float32)[:, 2].tolist(), strict=True))
    want = dry_by_definition(tokens, allowed, 0.8)
    assert actual == pytest.approx({1: 2.0 - want.pop(1, 0.0)} | {token: -penalty for token, penalty in want.items()})
    plain = processor.params(0).logit_adjustments
    assert static is not None and plain is not None
    assert drafts >= static or adjustments.tolist() == plain.tolist()


def test_dry_penalties_keep_within_the_limit_of_adjustments():
    processor = LogitsProcessor(SamplingParams(dry_multiplier=1, dry_allowed_length=1, frequency_penalty=1), (), 2)
    for token in (1, 2, 1, 3, 1):
        processor.add(token)
    adjustments = processor.params(5).logit_adjustments
    assert adjustments is not None and len(adjustments) == 2


@pytest.mark.parametrize("answer", [[7] * 2000, [number % 2 * number for number in range(2000)]])
def test_params_with_repetitions_execute_as_many_lines_for_long_answers(answer):
    """The engine's thread computes them for every token and draft of every request."""
    processor = LogitsProcessor(SamplingParams(dry_multiplier=0.1, dry_allowed_length=1))
    costs = []
    for number, token in enumerate(answer, 1):
        processor.add(token)
        if number in (100, 2000):
            costs.append(executed_lines(lambda: processor.draft_params(0, [7] * 15, [None] * 16)))
    assert costs[1] <= 1.2 * costs[0]
