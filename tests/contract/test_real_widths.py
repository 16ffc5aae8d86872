"""Layers of real widths take paths that a tiny model does not: one of SmolLM2, with its vocabulary and context, and one
that is 4,096 wide."""

from __future__ import annotations

import json

import numpy as np
import pytest

import webpte
from tests.contract.test_programs import check
from tests.studies.large.checkpoints import LLAMA_1B, write_checkpoint
from tests.support.export.exporting import export
from webpte.builder import build_program
from webpte.debug.compare import compare_file
from webpte.llm import LLM

VOCAB = 49152
TOLERANCE = 1e-4  # of logits whose size is about 10
PROMPT = tuple((i * 7919 + 13) % VOCAB for i in range(23))
SETTINGS = {
    "greedy": {},
    "sampled": {"temperature": 0.8, "seed": 7},
    "top_k and top_p": {"temperature": 1.1, "top_k": 40, "top_p": 0.9, "seed": 11},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wide")
    (folder / "wide.pte").symlink_to(export("smollm_1").path)
    vocabulary = {f"w{token}": token for token in range(VOCAB)}
    tokenizer = {
        "version": "1.0",
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w0"},
        "pre_tokenizer": {"type": "Whitespace"},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


@pytest.fixture(scope="module")
def loaded(folder):
    with LLM.load(folder / "wide.pte") as model:
        model.stop_tokens = frozenset()  # random weights choose any token; runs shall be long
        yield model


@pytest.fixture
def talk(loaded):
    loaded.reset_prefix_cache()
    return loaded.sequence()


def tokens_of(talk, **settings):
    """Return a whole answer to the prompt, from an empty cache."""
    talk.reset()
    generation = talk.generate(tokens=PROMPT, **settings)
    generation.result()
    return generation.tokens


def test_prefill_and_decode_equal_eager():
    exported = export("smollm_1")
    with webpte.load(exported.path) as program:
        check(program, exported, TOLERANCE)


def test_greedy_tokens_are_the_argmax_of_the_logits(talk):
    tokens = tokens_of(talk, max_new_tokens=6, tokens_per_submit=1)
    talk.reset()
    values = list(PROMPT)
    for token in tokens:
        assert int(talk.logits(values).argmax()) == token
        values = [token]


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_tokens_per_submit_real_width_same_tokens(talk, settings):
    single = tokens_of(talk, max_new_tokens=13, tokens_per_submit=1, **settings)
    assert len(set(single)) > 1
    for count in (2, 4, 8):
        assert tokens_of(talk, max_new_tokens=13, tokens_per_submit=count, **settings) == single


def test_tokens_per_submit_default_grows_on_fast_device(talk, monkeypatch):
    """Where a step is short a generation takes more and more tokens per submit: here it does so however long one is."""
    single = tokens_of(talk, max_new_tokens=20, tokens_per_submit=1)
    monkeypatch.setattr("webpte.llm.engine.scheduler.STREAM_SECONDS", 1e9)
    before = talk.llm.engine.runner.method.counters.snapshot()
    assert tokens_of(talk, max_new_tokens=20) == single
    done = talk.llm.engine.runner.method.counters.since(before)
    assert done.submits <= 9, "1 for the prompt, then up to 4 tokens each"


def test_forks_go_their_own_ways(talk):
    alone = tokens_of(talk, max_new_tokens=6, tokens_per_submit=3)
    talk.reset()
    talk.logits(PROMPT[:-1])
    with talk.fork() as other:
        seeded = {"temperature": 1.0, "seed": 3}
        streams = [
            iter(talk.generate(tokens=PROMPT, max_new_tokens=6, tokens_per_submit=3)),
            iter(other.generate(tokens=PROMPT, max_new_tokens=6, tokens_per_submit=2, **seeded)),
        ]
        mixed = [[next(stream).token for stream in streams] for _ in range(6)]
    assert [ours for ours, _ in mixed] == alone
    assert [theirs for _, theirs in mixed] == tokens_of(talk, max_new_tokens=6, tokens_per_submit=1, **seeded)


def test_snapshot_real_width_continues_exactly(talk, tmp_path):
    talk.logits(PROMPT)
    talk.snapshot(tmp_path / "state")
    expected = talk.logits([5])
    talk.reset()
    talk.logits(PROMPT[::-1])
    talk.restore(tmp_path / "state")
    assert talk.position == len(PROMPT)
    np.testing.assert_array_equal(talk.logits([5]), expected)


def test_prompt_in_any_chunks_same_bits(talk):
    """Every layer gives a row what it gives it alone, so logits do not show how the tokens before were read."""
    prompt = [(i * 7919 + 13) % VOCAB for i in range(60)]
    talk.reset()
    single = [talk.logits([token]) for token in prompt]
    for piece in (2, 3, 5, 8, 9, 13, 16, 17, 32):
        talk.reset()
        for first in range(0, len(prompt) - piece + 1, piece):
            result = talk.logits(prompt[first : first + piece])
            assert np.array_equal(result, single[first + piece - 1]), f"token {first + piece - 1} in pieces of {piece}"


WIDE = {
    **LLAMA_1B, "hidden_size": 4096, "intermediate_size": 4096, "num_hidden_layers": 1, "num_attention_heads": 8,
    "num_key_value_heads": 2, "head_dim": 128, "vocab_size": 512, "rope_scaling": None, "bos_token_id": 1,
    "eos_token_id": [2],
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("device", ["", "gpu", "gpu,no-subgroups"])
def test_layer_of_width_4096_equals_references(device, tmp_path, monkeypatch):
    monkeypatch.setenv("WEBPTE_DEVICE", device)
    write_checkpoint(tmp_path / "wide", WIDE)
    path = tmp_path / "wide.pte"
    build_program(tmp_path / "wide", path, quantize="4w", embedding="4,32", max_context=128, max_tokens=64)
    report = compare_file(path, inputs=[["1x19:0..511", "0"], ["1x1:0..511", "19"]])
    assert report["ok"], report["first_outside"]
