"""Language models with transformers' own static cache: its tokens, and a cache that stays on the device."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.models.static_caches import MODELS, export_static_cache, tokens_of


def generate(method, prompt, length):
    """Greedy search, one token a call. A cache of transformers counts where it is."""
    tokens = list(prompt)
    for position in range(length - 1):
        (logits,) = method.run([np.array([[tokens[position]]]), np.array([position])])
        if position + 1 == len(tokens):
            tokens.append(int(logits.reshape(-1).argmax()))
    return tokens


@pytest.mark.parametrize("name", MODELS)
def test_static_cache_generation_equals_transformers(name):
    exported = export_static_cache(name)
    prompt, expected = tokens_of(exported)
    assert len(expected) - len(prompt) >= 30 and len(set(expected)) > 8  # not one token over and over
    with webpte.load(exported.path) as program:
        method = program.method()
        assert generate(method, prompt, len(expected)) == expected
        method.reset()
        assert generate(method, prompt[:3], 10) == generate_again(program, prompt[:3], 10)


def generate_again(program, prompt, length):
    """In a fork, from the beginning."""
    fork = program.method().fork()
    fork.reset()
    return generate(fork, prompt, length)


@pytest.mark.parametrize("name", MODELS)
def test_static_cache_step_reads_back_only_logits(name):
    exported = export_static_cache(name)
    with webpte.load(exported.path) as program:
        method = program.method()
        method.run([np.array([[5]]), np.array([0])])
        before = method.counters.snapshot()
        (logits,) = method.run([np.array([[17]]), np.array([1])])
        done = method.counters.since(before)
        assert {*method.plan.cpu_calls} <= {"aten::add.out", "aten::copy_"}  # the counters have 64 bits
        assert done.submits == 1 and done.output_bytes <= logits.nbytes + 64  # and what the counters say
