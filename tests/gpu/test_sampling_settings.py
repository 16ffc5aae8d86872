"""What a sequence asks for is what the device draws by, as NumPy computes it from the settings' definitions, whatever
stands in the other rows."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest

import webpte
from tests.support.harness.cases import OneOp, T, case, choosing
from tests.support.harness.chi_square import assert_follows
from tests.support.harness.gate import slow_rows_but
from tests.unit.test_logits_processor import by_definition
from webpte.fusion.llm_rewrites import append_sampler
from webpte.graph import SymInt
from webpte.llm.sampling import ALL_HIDDEN, LogitsProcessor, RowSamplingParams, pack, sampler_outputs, unpack
from webpte.llm.settings import SamplingParams

DRAWS = 8000
PROMPT, ANSWER = [3, 3, 5, 17, 20], [5, 8, 8, 8, 30, 2]  # tokens that penalties are about


def behind(graph):
    """Return the sampler after a graph whose output is logits."""
    values, steps = [*graph.values, SymInt()], list(graph.steps)
    advance = len(graph.values)
    sampler = append_sampler(values, steps, graph.outputs[0], advance, steps[-1].origin)
    inputs, outputs = (*graph.inputs, advance, *sampler.inputs), (*graph.outputs, *sampler.outputs)
    return replace(graph, values=tuple(values), steps=tuple(steps), inputs=inputs, outputs=outputs)


@contextlib.contextmanager
def sampler(folder, rows, vocabulary, dtype="f32", variant=""):
    """Chooses tokens for up to that many rows of logits."""
    identity = case("aten.neg.default", T("n", vocabulary, dtype=dtype), n=(rows, 1))
    OneOp(identity).write(folder / "p.pte")
    with choosing(variant), webpte.load(folder / "p.pte") as program:
        method = program.method("forward", behind)

        def choose(logits, choices, advance=0):
            inputs = np.ascontiguousarray(-np.broadcast_to(logits, (len(choices), vocabulary)))
            return unpack(method.run([inputs, advance, *pack(choices)], outputs=sampler_outputs(choices)))

        yield choose


def bits(allowed):
    padded_words = np.zeros(-(-len(allowed) // 32) * 32, bool)
    padded_words[: len(allowed)] = allowed
    return np.packbits(padded_words, bitorder="little").view(np.uint32)


def expected(logits, settings, allowed):
    """Return the probability of each token."""
    scores = by_definition(logits, settings, PROMPT, ANSWER)
    scores[~allowed] = -np.inf
    scores = (scores - scores.max()) / settings.temperature
    order = np.argsort(-scores, kind="stable")
    kept = np.isfinite(scores)
    if settings.top_k:
        kept[order[settings.top_k :]] = False
    mass = np.where(kept, np.exp(scores), 0)
    before = np.cumsum(mass[order]) - mass[order]
    kept[order[before >= settings.top_p * mass.sum()]] = False
    kept &= np.exp(scores) >= settings.min_p
    mass = np.where(kept, mass, 0)
    return mass / mass.sum()


def choices_of(settings, count, mask=None):
    processor = LogitsProcessor(settings, PROMPT)
    for token in ANSWER:
        processor.add(token)
    first = processor.params(len(ANSWER), mask=mask)
    return [replace(first, step=first.step + i) for i in range(count)]


WARM = SamplingParams(temperature=1.0, seed=5)
SAMPLING_WORDS = {
    "temperature": replace(WARM, temperature=1.7),
    "top_k": replace(WARM, top_k=7),
    "top_p": replace(WARM, top_p=0.8),
    "min_p": replace(WARM, min_p=0.15),
    "repetition": replace(WARM, repetition_penalty=1.6),
    "reward for repetition": replace(WARM, repetition_penalty=0.6),
    "presence": replace(WARM, presence_penalty=1.1),
    "frequency": replace(WARM, frequency_penalty=0.8),
    "bias": replace(WARM, logit_bias={8: 2.0, 30: -100.0, 0: 1.0}),
    "penalties": replace(WARM, repetition_penalty=1.2, presence_penalty=0.4, frequency_penalty=0.3),
    "all": SamplingParams(
        temperature=1.3,
        top_k=25,
        top_p=0.95,
        min_p=0.02,
        repetition_penalty=1.3,
        presence_penalty=0.5,
        frequency_penalty=0.2,
        logit_bias={5: 2.0, 11: -3.0},
        seed=9,
    ),
}
MASKED = ("temperature", "top_k", "min_p", "bias", "all")


@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    slow_rows_but([(61, "f32")], [(61, "f32"), (61, "f16"), (64, "f32"), (64, "f16")]),
)
def test_draws_follow_the_distribution_of_each_setting(tmp_path, vocabulary, dtype):
    """Alone and together, with a mask and without: chi square with the same noise in every run."""
    random = np.random.default_rng(2)
    logits = random.normal(0, 1.3, vocabulary).astype(dtype.replace("f", "float"))
    everything, some = np.ones(vocabulary, bool), random.random(vocabulary) < 0.5
    runs = [(name, everything, None) for name in SAMPLING_WORDS] + [(name, some, bits(some)) for name in MASKED]
    with sampler(tmp_path, DRAWS, vocabulary, dtype) as choose:
        for name, allowed, mask in runs:
            actual = choose(logits, choices_of(SAMPLING_WORDS[name], DRAWS, mask))
            counts = np.bincount([chosen.token for chosen in actual], minlength=vocabulary)
            want = expected(logits, SAMPLING_WORDS[name], allowed)
            assert (want > 0).sum() > 3, "too few to say anything of"
            assert_follows(counts, want * DRAWS)


def test_sampling_omitted_setting_is_detected():
    """What the test above compares with differs for each of its settings by more than it forgives."""
    logits = np.random.default_rng(2).normal(0, 1.3, 61)
    everything = np.ones(61, bool)
    plain = expected(logits, WARM, everything)
    for settings in SAMPLING_WORDS.values():
        with pytest.raises(AssertionError):
            assert_follows(plain * DRAWS, expected(logits, settings, everything) * DRAWS)


def test_sampling_large_vocabulary_follows_probabilities(tmp_path):
    """49,152 tokens, of which some are likely and the rest together weigh as much."""
    vocabulary, rows, runs = 49_152, 100, 8
    logits = np.random.default_rng(3).normal(0, 1, vocabulary).astype(np.float32)
    logits[:40] += np.linspace(8, 11, 40)
    allowed = np.random.default_rng(4).random(vocabulary) < 0.7
    with sampler(tmp_path, rows, vocabulary) as choose:
        for settings in (SAMPLING_WORDS["penalties"], replace(SAMPLING_WORDS["all"], top_k=2000)):
            choices = choices_of(settings, rows, bits(allowed))
            actual = [chosen.token for run in range(runs) for chosen in choose(logits, choices, run * rows)]
            counts = np.bincount(actual, minlength=vocabulary)
            assert_follows(counts, expected(logits, settings, allowed) * rows * runs)


def mixed(vocabulary, count):
    """Rows that ask for all kinds of things, no two for the same."""
    random = np.random.default_rng(8)
    masks = [bits(random.random(vocabulary) < share) for share in (0.5, 0.02)]
    rows = []
    for i, settings in enumerate([SamplingParams(), *SAMPLING_WORDS.values()] * 3):
        mask = masks[i % 2] if i % 5 == 3 else None
        settings = replace(settings, seed=i, top_logprobs=i % 4 if i > 12 else 0)
        rows.append(choices_of(settings, 1, mask)[0])
    return rows[:count]


@pytest.mark.parametrize("variant", ["narrow", "wide"])
@pytest.mark.parametrize(
    ("vocabulary", "dtype"),
    slow_rows_but([(1009, "f16"), (49_152, "f32")], [(61, "f32"), (1009, "f16"), (49_152, "f16"), (49_152, "f32")]),
)
def test_sampling_row_independent_of_other_rows(tmp_path, vocabulary, dtype, variant):
    rows = mixed(vocabulary, 16)
    logits = np.random.default_rng(6).normal(0, 3, (16, vocabulary)).astype(dtype.replace("f", "float"))
    with sampler(tmp_path, 16, vocabulary, dtype, variant) as choose:
        together = choose(logits, rows, 3)
        for order in (range(16), range(15, -1, -1), (4, 4, 0, 9)):
            again = choose(logits[list(order)], [rows[i] for i in order], 3)
            assert [result.token for result in again] == [together[i].token for i in order]
        for i, row in enumerate(rows):
            (alone,) = choose(logits[i : i + 1], [row], 3)
            (later,) = choose(logits[i : i + 1], [replace(row, step=row.step + 3)])
            assert alone.token == later.token == together[i].token, row
            assert alone.top_logprobs == together[i].top_logprobs if row.top_logprobs else not alone.top_logprobs


@pytest.mark.parametrize("variant", ["narrow", "wide"])
@pytest.mark.parametrize(("vocabulary", "dtype"), [(7, "f32"), (1009, "f32"), (2056, "f16"), (49_152, "f32")])
def test_sampling_top_logprobs_are_listed(tmp_path, vocabulary, dtype, variant):
    """Those of the model: before penalties and masks. Of equal ones the first comes first."""
    logits = np.random.default_rng(7).normal(0, 3, (3, vocabulary)).astype(dtype.replace("f", "float"))
    logits[1] = np.round(logits[1])  # many are equal
    logits[2, 5:] = -np.inf
    rows = [
        RowSamplingParams(top_logprobs=20),
        RowSamplingParams(top_logprobs=5, logit_adjustments=np.array([[3, 0x40000000, 0]], np.int32)),
        RowSamplingParams(top_logprobs=20),
    ]
    wide = logits.astype(np.float64)
    sure = wide - np.log(np.exp(wide - wide.max(1, keepdims=True)).sum(1, keepdims=True)) - wide.max(1, keepdims=True)
    with sampler(tmp_path, 3, vocabulary, dtype, variant) as choose:
        for result, values, there in zip(choose(logits, rows), sure, (vocabulary, vocabulary, 5), strict=True):
            order = np.argsort(-values, kind="stable")[: min(20, there)]
            assert [token for token, _ in result.top_logprobs] == order.tolist()
            assert np.allclose([value for _, value in result.top_logprobs], values[order], atol=1e-4)
            assert np.isclose(result.logprob, values[result.token], atol=1e-4)


def test_sampling_all_masked_row_chooses_nothing(tmp_path):
    """No token at all, or none that the model has not hidden itself; the row beside it does not notice."""
    vocabulary = 70
    logits = np.random.default_rng(9).normal(0, 1, (4, vocabulary)).astype(np.float32)
    logits[1, 5] = -np.inf
    only = np.zeros(vocabulary, bool)
    nothing, one, other = bits(only), bits(np.arange(vocabulary) == 5), bits(np.arange(vocabulary) == 69)
    for temperature in (0.0, 1.0):
        rows = [RowSamplingParams(temperature, mask=mask, logprob=True) for mask in (nothing, one, one, other)]
        with sampler(tmp_path, 4, vocabulary) as choose:
            result = choose(logits, rows)
        assert [chosen.token for chosen in result] == [ALL_HIDDEN, ALL_HIDDEN, 5, 69]
        assert np.isnan([chosen.logprob for chosen in result]).tolist() == [True, True, False, False]


def test_sampling_random_parameter_words_are_safe(tmp_path):
    """The device cannot refuse what makes no sense; it then chooses some token, or none."""
    random = np.random.default_rng(10)
    logits = random.normal(0, 3, (8, 1009)).astype(np.float32)
    OneOp(case("aten.neg.default", T("n", 1009), n=(8, 1))).write(tmp_path / "p.pte")
    with webpte.load(tmp_path / "p.pte") as program:
        method = program.method("forward", behind)
        for _ in range(20):
            words = random.integers(-(2**31), 2**31, 64 + 1024, dtype=np.int64).astype(np.int32)
            tokens, _, tops, _ = method.run([logits, 0, words, 10_000, 3], outputs=(1, 2, 3, 4))
            assert ((tokens >= -2) & (tokens < 1009)).all() and ((tops >= -1) & (tops < 1009)).all()
