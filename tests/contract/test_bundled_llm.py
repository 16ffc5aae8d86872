"""A language model played from its bundle: the tokens of the program, alone, seeded, steered and several at once."""

from __future__ import annotations

import json
import shutil
from typing import Any

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.devices import destroy_device
from tests.support.harness.errors import raises
from tests.support.models.tiny_llm import CHAT_TEMPLATE, tokens_of, write_tiny_llm
from webpte.llm import LLM
from webpte.llm.engine.bundled_runner import BundledRunner
from webpte.llm.engine.runner import BatchedRunner, BatchToken, SampleRow
from webpte.llm.sampling import RowSamplingParams
from webpte.runtime import Bundle

ASKED: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "seed": 11},
    {"temperature": 0.7, "seed": 12, "top_k": 20, "top_p": 0.9, "repetition_penalty": 1.2},
    {"logit_bias": {5: 3.0}, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    {"temperature": 1.3, "seed": 5, "min_p": 0.05, "top_logprobs": 4, "logprobs": True},
)
PROMPTS = ("a", "hello", "the rain in Spain stays mainly", "x" * 40)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a program with its bundle beside it."""
    result = write_tiny_llm(tmp_path_factory.mktemp("tiny"))
    with webpte.load(result / "tiny.pte") as program:
        webpte.bundle(program, result / "site", sequences=4)
    return result


@pytest.fixture(scope="module")
def pair(folder):
    with LLM.load(folder / "tiny.pte") as program, LLM.load(folder / "site") as bundle:
        assert isinstance(bundle.engine.runner, BundledRunner) and isinstance(program.engine.runner, BatchedRunner)
        yield program, bundle


@pytest.mark.parametrize("settings", ASKED, ids=str)
def test_bundle_tokens_equal_program(pair, settings):
    for prompt in PROMPTS:
        program, bundle = (llm.generate(prompt, max_new_tokens=12, **settings) for llm in pair)
        assert tokens_of(bundle) == tokens_of(program)
        assert bundle.text == program.text


def test_bundled_llm_batch_tokens_equal_single(pair):
    program, bundle = pair
    jobs = [(prompt, settings) for settings in ASKED for prompt in PROMPTS]
    prompts = [{"prompt": prompt, "max_new_tokens": 10, **settings} for prompt, settings in jobs]
    alone = [tokens_of(program.generate(prompt, max_new_tokens=10, **settings)) for prompt, settings in jobs]
    assert [answer.tokens for answer in bundle.generate_many(prompts)] == [list(tokens) for tokens in alone]
    assert bundle.engine.runner.num_slots == 4


def test_constraints_and_log_probabilities(pair):
    results = []
    for llm in pair:
        answer = llm.complete("say", choices=["yes", "no"], temperature=1.0, seed=3, top_logprobs=3, logprobs=True)
        pieces = list(answer)
        results.append((answer.text, [(p.token, p.logprob, p.top_logprobs) for p in pieces]))
    assert results[0] == results[1] and results[0][0] in ("yes", "no")


def test_bundled_llm_template_and_tokens_equal_program(pair, folder):
    program, bundle = pair
    assert bundle.template == CHAT_TEMPLATE and bundle.capacity == program.capacity
    assert bundle.vocabulary == program.vocabulary and bundle.stop_tokens == program.stop_tokens
    messages = [{"role": "user", "content": "hi"}]
    assert bundle.render(messages) == program.render(messages)


def test_bundled_runner_any_slots_and_sample_rows(folder):
    """What the engine may ask for: prompts beside those who decode, several picks of a slot, logits, copies."""
    with webpte.load(folder / "tiny.pte") as program, webpte.load(folder / "site") as bundle:
        assert isinstance(bundle, Bundle) and bundle.manifest.language is not None
        many = BatchedRunner(program, 4), BundledRunner(bundle, bundle.manifest.language, 4)
        random = np.random.default_rng(8)
        texts = random.integers(0, 128, (4, 30)).tolist()
        actual = []
        for runner in many:
            runner.grow(4)
            run: list[Any] = []
            start = [BatchToken(token, slot, at) for slot in (2, 0) for at, token in enumerate(texts[slot][:13])]
            run.append(runner.run(start, []))
            rows = [BatchToken(texts[2][13], 2, 13), *(BatchToken(texts[0][at], 0, at) for at in range(13, 17))]
            rows += [BatchToken(texts[3][at], 3, at) for at in range(9)]
            picks = [SampleRow(row, RowSamplingParams(1.0, seed=4, step=row)) for row in (0, 2, 3, 4, 13)]
            run.append([chosen.token for chosen in runner.run(rows, picks)])
            runner.copy(0, 1, 12)
            three = [BatchToken(texts[slot][at], slot, at) for slot, at in ((1, 12), (0, 17), (3, 9))]
            each = [SampleRow(row, RowSamplingParams(0.9, seed=row)) for row in range(3)]
            run.append([[chosen.token for chosen in step] for step in runner.start_steps(three, each, 3).take()])
            logits = runner.logits([BatchToken(texts[2][at], 2, at) for at in range(14, 20)])
            actual.append((run, [logits, *(np.frombuffer(piece, np.float32) for piece in runner.read(2, 14))]))
        assert actual[0][0] == actual[1][0]
        for bundled, expected in zip(actual[1][1], actual[0][1], strict=True):  # kernels for subgroups of another size
            np.testing.assert_allclose(bundled, expected, rtol=1e-5, atol=1e-5)
        with raises(webpte.InputError, "4 slots of 64", "[[4, 0]"):
            many[1].run([BatchToken(1, 4, 0)], [])


def test_bundled_llm_restores_snapshot_of_program(pair, tmp_path):
    """Caches lie equal in both, so a snapshot of one is taken by the other."""
    program, bundle = pair
    sequence = program.sequence()
    list(sequence.complete("a story:", max_new_tokens=5))
    sequence.snapshot(tmp_path / "state")
    other = bundle.sequence()
    other.restore(tmp_path / "state")
    assert other.tokens == sequence.tokens
    np.testing.assert_allclose(other.logits([7]), sequence.logits([7]), rtol=1e-5, atol=1e-5)


def test_bundled_llm_wrong_kv_cache_or_kind_is_refused(folder, tmp_path):
    with raises(webpte.InputError, "f32", "kv_cache", "'f16'"):
        LLM.load(folder / "site", kv_cache="f16")
    with webpte.load(export("add").path) as program:
        webpte.bundle(program, tmp_path / "site")
    with raises(webpte.InputError, tmp_path / "site", "program", code="not_a_language_model"):
        LLM.load(tmp_path / "site")


def test_bundled_llm_damaged_tokenizer_is_refused(folder, tmp_path):
    shutil.copytree(folder / "site", tmp_path / "site")
    language = json.loads((tmp_path / "site" / "manifest.json").read_text())["language"]
    path = tmp_path / "site" / "files" / f"{language['tokenizer']}.json"
    path.write_bytes(path.read_bytes().replace(b"WordLevel", b"WordLevek"))
    with raises(webpte.FormatError, path.name, path.stat().st_size, code="hash_mismatch"):
        LLM.load(tmp_path / "site")


def test_bundled_llm_device_lost_recovers(folder):
    """Last in this file, for others share the device."""
    with LLM.load(folder / "site", recover=True) as llm:
        llm.engine.background = False  # the device is lost before the second token is computed
        want = tokens_of(llm.complete("hello", max_new_tokens=10))
        answer = llm.complete("hello", max_new_tokens=10)
        assert next(answer).token == want[0]
        destroy_device(llm.engine.runner.method)
        assert tokens_of(answer) == want and llm.engine.runner.method.recoveries == 1
