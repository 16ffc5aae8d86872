"""Perplexity and divergence on arrays, the windows of a text, and the built-in texts."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

from tests.studies.questions.questions import QUESTIONS
from tests.support.harness.errors import raises
from webpte import InputError
from webpte.llm import LogitsError
from webpte.measure import evaluation as ev

RNG = np.random.default_rng(17)


def test_log_softmax_is_stable_where_exponentials_overflow():
    result = ev.log_softmax(np.array([[1000.0, 1001.0, 999.0], [-1000.0, -1001.0, -999.0]], np.float32))
    assert np.allclose(np.exp(result).sum(-1), 1, atol=1e-15)
    assert math.isclose(result[0, 1], -math.log(1 + math.exp(-1) + math.exp(-2)), rel_tol=1e-12)


def test_kl_divergence_zero_for_same_and_by_definition():
    logits = RNG.normal(size=(7, 11)) * 4
    log_p, log_q = ev.log_softmax(logits), ev.log_softmax(logits[::-1] + RNG.normal(size=(7, 11)))
    assert np.array_equal(ev.kl(log_p, log_p), np.zeros(7))
    p, q = np.exp(log_p), np.exp(log_q)
    expected = [sum(p[n, v] * math.log(p[n, v] / q[n, v]) for v in range(11)) for n in range(7)]
    assert np.allclose(ev.kl(log_p, log_q), expected, rtol=1e-12)
    assert (ev.kl(log_p, log_q) > 0).all()
    assert not np.allclose(ev.kl(log_p, log_q), ev.kl(log_q, log_p))  # it has a direction


def test_hidden_tokens_count_for_nothing_unless_the_reference_wants_them():
    hidden = ev.log_softmax(np.array([[0.0, 0.0, -np.inf]]))
    seen = ev.log_softmax(np.array([[0.0, 0.0, 0.0]]))
    assert ev.kl(hidden, hidden)[0] == 0
    assert math.isclose(ev.kl(hidden, seen)[0], math.log(1.5))
    assert ev.kl(seen, hidden)[0] == math.inf


def test_perplexity_of_a_uniform_guess_is_the_vocabulary():
    result = ev.Predictions()
    result.add(np.zeros((5, 13), np.float32), np.arange(5))
    result.add(np.zeros((2, 13), np.float32), np.arange(2))
    assert result.tokens == 7
    assert result.perplexity() == pytest.approx((13, 0), abs=1e-12)


def test_standard_errors_equal_a_mean():
    values = np.array([1.0, 2.0, 4.0, 7.0])
    assert ev.mean(values) == pytest.approx((3.5, math.sqrt(7 / 4)))
    assert ev.mean(values[:1]) == (1.0, math.inf)
    e = math.exp(3.5)
    assert ev.perplexity(values) == pytest.approx((e, e * math.sqrt(7 / 4)))


def test_comparison_in_chunks_equals_whole():
    a, b, targets = RNG.normal(size=(9, 6)), RNG.normal(size=(9, 6)), RNG.integers(0, 6, 9)
    whole, pieces = ev.ModelComparison(), ev.ModelComparison()
    whole.add(a, b, targets)
    for piece in (slice(0, 4), slice(4, 5), slice(5, 9)):
        pieces.add(a[piece], b[piece], targets[piece])
    actual, expected = pieces.result(), whole.result()
    assert actual.tokens == expected.tokens == 9
    assert np.allclose(np.array(actual[1:]), np.array(expected[1:]), rtol=1e-12)
    assert expected.agreement.value == np.mean(a.argmax(-1) == b.argmax(-1))
    assert expected.reference_perplexity != expected.perplexity


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([0, np.nan, 1], "1 of 3 logits"),
        ([0, np.inf, 1], " inf."),
        ([-np.inf] * 3, " -inf."),
    ],
)
def test_log_softmax_of_infinite_or_nan_logits_is_refused(row, said):
    with raises(LogitsError, "1 of 2 rows", "row 1,", said, code="not_finite"):
        ev.log_softmax(np.array([[0, 1, 2], row], np.float32))


@pytest.mark.parametrize("prefix", [(), (99,), (98, 99)])
@pytest.mark.parametrize("count", [2, 3, 10, 11, 12, 17, 18, 40])
@pytest.mark.parametrize("context", [4, 5, 11])
def test_sliding_windows_predict_every_token_once_after_known_tokens(prefix, count, context):
    text = list(range(count))
    seen: list[int] = []
    stride = max(1, 3 * (context - len(prefix)) // 4 - 1)
    result = ev.sliding_windows(ev.TextTokens(text, prefix, 7), context, stride)
    for number, window in enumerate(result):
        assert len(window.tokens) <= context
        assert window.tokens[: len(prefix)] == prefix
        body = window.tokens[len(prefix) :]
        assert list(body) == list(range(body[0], body[0] + len(body)))  # nothing is left out between
        seen += window.tokens[window.first :]
        if number:
            assert window.scored <= stride
            assert window.first > len(prefix)  # something of the text is known
    assert seen == text[0 if prefix else 1 :]


@pytest.mark.parametrize("start", [None, 99])
@pytest.mark.parametrize("count", [2, 3, 7, 8, 9, 16, 17, 40])
@pytest.mark.parametrize("context", [2, 7, 8])
def test_rolling_windows_equal_lm_evaluation_harness(start, count, context):
    """By its definition: disjoint targets, one token of context, and a last window as long as the others."""
    text = list(range(count))
    result = ev.rolling_windows(ev.TextTokens(text, (98,), start), context)
    assert [token for window in result for token in window.tokens[window.first :]] == text[start is None :]
    known = [*([] if start is None else [start]), *text]
    for number, window in enumerate(result):
        last = number == len(result) - 1
        assert len(window.tokens) - 1 == (min(context, len(known) - 1) if number == 0 else context)  # tokens fed
        assert window.tokens[0] == (known[0] if number == 0 else window.tokens[0])
        if not last:
            assert window.first == 1
        at = known.index(window.tokens[0])
        assert list(window.tokens) == known[at : at + len(window.tokens)]


def test_windows_of_a_long_context_are_no_longer_than_others():
    text = ev.TextTokens(range(5000), (), None)
    assert ev.rolling_windows(text, 131072) == ev.rolling_windows(text, ev.MAX_WINDOW_TOKENS)
    assert ev.sliding_windows(text, 131072, 700) == ev.sliding_windows(text, ev.MAX_WINDOW_TOKENS, 700)


@pytest.mark.parametrize(
    ("count", "context", "prefix", "code", "expected"),
    [
        (0, 8, (), "too_few_tokens", ["0 tokens"]),
        (0, 8, (1, 2), "too_few_tokens", ["0 tokens"]),
        (1, 8, (), "too_few_tokens", ["1 token"]),
        (9, 1, (), "context_too_short", ["2 tokens", "got 1"]),
        (9, 3, (1, 2), "context_too_short", ["4 tokens", "got 3"]),
        (9, 5, (1,), "out_of_range", ["at most 3", "got 4"]),
    ],
)
def test_sliding_windows_invalid_sizes_are_refused(count, context, prefix, code, expected):
    with raises(InputError, *expected, code=code):
        ev.sliding_windows(ev.TextTokens(range(count), prefix, None), context, 4 if code == "out_of_range" else 1)


@pytest.mark.parametrize(
    ("count", "start", "context", "code"),
    [(0, 5, 8, "too_few_tokens"), (1, None, 8, "too_few_tokens"), (9, 5, 1, "context_too_short")],
)
def test_rolling_windows_invalid_sizes_are_refused(count, start, context, code):
    with raises(InputError, code=code):
        ev.rolling_windows(ev.TextTokens(range(count), (), start), context)


def test_evaluation_and_calibration_texts_are_varied_and_disjoint():
    first, second = ev.evaluation_text(), ev.calibration_text()
    for text in (first, second):
        assert not text.startswith("#") and text.isascii()
        assert 10_000 < len(text) < 30_000
        assert "def " in text and "user:" in text and "assistant:" in text
    shingles = [
        {tuple(words[i : i + 8]) for i in range(len(words) - 7)}
        for words in (re.findall(r"\w+", text.lower()) for text in (first, second))
    ]
    assert not shingles[0] & shingles[1]


def test_calibration_chats_do_not_answer_questions():
    chats = ev.calibration_chats()
    assert len(chats) == 24 and {len(chat) for chat in chats} == {2, 4}
    for chat in chats:
        assert [message["role"] for message in chat] == ["user", "assistant"] * (len(chat) // 2)
    said = {message["content"] for chat in chats for message in chat}
    seen = "\n".join(said) + ev.calibration_text()
    assert not [question.text for question in QUESTIONS if question.text.lower() in seen.lower()]
