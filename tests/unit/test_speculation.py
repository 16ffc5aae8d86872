"""Drafts out of a sequence's own text, and whether they pay. Devices are cost curves; no model is needed."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from webpte.llm.engine.speculation import (
    MAX_DRAFTS,
    MAX_NGRAM_TOKENS,
    MIN_NGRAM_TOKENS,
    MIN_SAMPLES,
    NUM_LATEST,
    STALE_STEPS,
    NgramDrafter,
    Speculation,
    StepCosts,
)

# Milliseconds of a pass by rows: a real 4-bit model, a device where rows are free, and one where they cost in full.
MEASURED = {1: 40, 2: 48, 3: 59, 4: 72, 5: 94, 8: 114, 16: 190, 32: 337}
FLAT = {1: 40, 32: 41}
STEEP = {1: 40, 2: 80, 32: 1280}


def curve(points):
    rows = list(range(1, 33))
    return dict(zip(rows, np.interp(rows, list(points), list(points.values())).tolist(), strict=True))


class Run:
    """An answer whose tokens are known, decoded pass by pass."""

    def __init__(self, prompt, answer, points=MEASURED, others=0, always=False, noise=lambda: 1.0, again=0):
        milliseconds, costs = curve(points), StepCosts()
        self.speculation = Speculation(costs, prompt, always)
        self.milliseconds, at = 0.0, 0
        while at < len(answer):
            drafted = self.speculation.draft(1 + others, min(MAX_DRAFTS, len(answer) - at - 1)) if at else ()
            pairs = zip(drafted, answer[at:], strict=False)
            accepted = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
            for token in answer[at : at + accepted + 1]:
                self.speculation.append(token)
            took = milliseconds[1 + others + len(drafted)] * noise()
            costs.record(1 + others + len(drafted), took)
            self.speculation.verified(1 + others, len(drafted), accepted, took)
            self.milliseconds += took
            at += accepted + 1
            if again and accepted < len(drafted):  # a state that cannot go back by itself
                self.speculation.recompute(1 + others, again)
                self.milliseconds += milliseconds[1 + others + again] - milliseconds[1 + others]
        self.faster = len(answer) * milliseconds[1 + others] / self.milliseconds


def words(count, seed=0, of=5000):
    chance = random.Random(seed)
    return [chance.randrange(of) for _ in range(count)]


def edited(tokens, every=25):
    return [-1 - token if at % every == every - 1 else token for at, token in enumerate(tokens)]


def prose(count, seed, sharpness):
    """Each token has a few followers, some likelier than others: parts repeat, and mostly continue otherwise."""
    chance, result = random.Random(seed), [0]
    followers: dict[int, list[int]] = {}
    for _ in range(count):
        options = followers.setdefault(result[-1], [chance.randrange(3000) for _ in range(8)])
        result.append(options[min(int(chance.expovariate(sharpness)), 7)])
    return result


def contrary(count):
    """Return a text that continues otherwise than it did before, wherever it repeats itself."""
    drafter = NgramDrafter()
    results: list[int] = []
    for at in range(count):
        token = results[at - 50] if at >= 50 else at
        if drafter.draft(1) == (token,):
            token += 10_000
        results.append(token)
        drafter.extend((token,))
    return results


@given(st.lists(st.integers(0, 3), max_size=80))
def test_drafter_match_has_same_suffix(tokens):
    drafter = NgramDrafter(tokens)
    ends = range(MIN_NGRAM_TOKENS, len(tokens))
    if not any(tokens[end - MIN_NGRAM_TOKENS : end] == tokens[-MIN_NGRAM_TOKENS:] for end in ends):
        assert drafter.match_length == 0 and drafter.draft(5) == ()
        return
    length, drafted = drafter.match_length, drafter.draft(5)
    assert MIN_NGRAM_TOKENS <= length < len(tokens) and len(drafted) == 5
    extended = [*tokens, *drafted]
    places = [end for end in ends if tokens[max(0, end - length) : end] == tokens[-length:]]
    assert any(extended[end : end + 5] == list(drafted) for end in places)


@given(st.lists(st.integers(0, 2), max_size=40), st.lists(st.integers(0, 2), max_size=40))
def test_adding_in_pieces_is_adding_at_once(first, second):
    pieces, whole = NgramDrafter(first), NgramDrafter([*first, *second])
    for token in second:
        pieces.extend((token,))
    assert (pieces.match_length, pieces.draft(9)) == (whole.match_length, whole.draft(9))


def test_drafter_prefers_longest_then_latest_match():
    assert NgramDrafter([1, 2, 3, 4, 50, 9, 2, 3, 4, 60, 1, 2, 3, 4]).draft(1) == (50,)
    assert NgramDrafter([7, 2, 3, 4, 50, 8, 2, 3, 4, 60, 9, 2, 3, 4]).draft(1) == (60,)
    assert NgramDrafter([1, 2, 9, 3, 2]).draft(3) == ()


def test_drafter_repetition_continues():
    assert NgramDrafter([5, 1, 2, 1, 2, 1, 2]).draft(5) == (1, 2, 1, 2, 1)
    assert NgramDrafter([7] * 6).draft(4) == (7, 7, 7, 7)


def test_drafter_cost_per_token_is_constant():
    """Even where everything is equal: few places are kept, and few tokens compared."""
    drafter = NgramDrafter([1, 2, 3] * 2000)
    assert drafter.match_length > MAX_NGRAM_TOKENS
    assert max(map(len, drafter._positions.values())) <= 4


def test_speculation_copied_text_is_faster():
    prompt = words(300)
    run = Run(prompt, edited(prompt))
    assert run.faster > 1.7 and run.speculation.accepted > 0.7 * run.speculation.drafted
    assert Run(prompt, prompt).faster > 2.3
    assert Run(prompt, edited(prompt), FLAT).faster > 4


@pytest.mark.parametrize("points", [MEASURED, FLAT, STEEP], ids=["measured", "flat", "steep"])
@pytest.mark.parametrize("others", [0, 3, 7])
def test_speculation_is_never_much_slower(points, others):
    texts = [words(1000, 1, of=6), words(1000, 2), contrary(64), contrary(1000)]
    texts += [prose(600, seed, sharpness) for seed in range(3) for sharpness in (0.3, 1, 2)]
    for text in texts:
        assert Run(words(100), text, points, others).faster >= 0.975


def test_rows_are_wasted_on_few_tokens_of_text_that_does_not_repeat():
    for text in (words(1000, 1, of=6), contrary(1000)):
        run = Run([], text)
        assert run.speculation.drafted - run.speculation.accepted < 0.2 * len(text)
        assert Run([], text, always=True).faster < 0.7  # what it is kept from


def test_text_that_begins_to_repeat_is_noticed():
    run = Run([], [*contrary(300), *words(40, 3) * 10], MEASURED)
    assert run.speculation.accepted > 250


def test_speculation_stops_when_rows_cost_in_full():
    prompt = words(300)
    run = Run(prompt, prompt, STEEP)
    assert run.speculation.drafted < 30 and run.faster >= 0.975


def test_speculation_costs_little_before_first_success():
    """Many rows cost far more than few: the first drafts after a mistake are few, and gains are not lost on it."""
    convex = {1: 66, 2: 79, 4: 120, 8: 197, 16: 447, 32: 1200}
    prompt = words(400)
    run = Run(prompt, edited(prompt, 40), convex)
    assert run.faster > 1.6
    costs = StepCosts()
    for _ in range(MIN_SAMPLES):
        costs.record(1, 1.0)
        costs.record(16, 1.1)
    speculation = Speculation(costs, [*range(50), *range(40)])
    counts = []
    for token in range(40, 46):
        counts.append(len(speculation.draft(1, 15)))
        speculation.append(token)
        speculation.verified(1, counts[-1], counts[-1], 1.0)
    assert counts[:4] == [1, 3, 7, 15]


@pytest.mark.parametrize("points", [MEASURED, FLAT, STEEP], ids=["measured", "flat", "steep"])
def test_speculation_with_tokens_computed_again_is_never_much_slower(points):
    for text in (words(1000, 1, of=6), contrary(1000), *(prose(600, 0, sharpness) for sharpness in (0.3, 1, 2))):
        assert Run(words(100), text, points, again=20).faster >= 0.96
    copied = words(300)
    assert Run(copied, copied, points, again=20).faster == Run(copied, copied, points).faster


def test_speculation_noisy_machine_still_gains():
    chance, prompt = random.Random(4), words(300)
    run = Run(prompt, edited(prompt), noise=lambda: chance.choice((0.9, 1, 1, 1.1, 3)))
    assert run.speculation.accepted > 150


def test_speculation_always_drafts_despite_cost():
    run = Run([], contrary(200), STEEP, always=True)
    assert run.speculation.drafted > 200


def test_costs_are_medians_and_lines_between_them():
    costs = StepCosts()
    assert costs.seconds(1) is None
    for seconds in (9.0, 1.0, 1.0, 1.0, 5.0):
        costs.record(1, seconds)
    assert costs.seconds(1) == 1 and costs.seconds(3) == 1.5
    costs.record(5, 3.0)
    assert costs.seconds(5) == 2  # one pass says nothing: it may have compiled
    for _ in range(MIN_SAMPLES):
        costs.record(5, 2.0)
    assert (costs.seconds(5), costs.seconds(3), costs.seconds(9)) == (2, 1.5, 3)
    for _ in range(NUM_LATEST):
        costs.record(1, 4.0)
    assert costs.seconds(1) == 4 and costs.seconds(3) == 4 and costs.seconds(6) == 2


def test_step_costs_stale_measurement_is_repeated():
    costs = StepCosts()
    for _ in range(MIN_SAMPLES):
        costs.record(2, 100.0)
    for _ in range(2 * STALE_STEPS):
        costs.record(1, 1.0)
    assert costs.seconds(2) == 1.25
