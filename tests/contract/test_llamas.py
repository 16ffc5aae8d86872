"""A tiny Llama in every variant ExecuTorch exports, its prompt cut into chunks of all sizes.

That each variant equals eager PyTorch, at prefill and decode, is tested with the other programs.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close

# Chunks that mix kernels for one row and for several, even and odd numbers of them, and shapes seen before.
CHUNKS = ((31,), (17, 1, 13), (1, 2, 3, 4, 5, 1, 7, 8), (30, 1), (1, 30), (13, 1, 2, 1, 13, 1))
VARIANTS = {
    "llama": 1e-5,
    "llama_4w": 1e-5,
    "llama_4w_emb4": 1e-5,
    "llama_hfrope_4w": 1e-5,
    "llama_8da4w": 1e-5,
    "llama_8da4w_emb4": 1e-5,
    "llama_4w_fp16": 4e-3,  # twice what a variant may be off
}


@pytest.mark.parametrize("name", VARIANTS)
def test_prompt_in_chunks_equals_one_call(name):
    prompt = np.random.default_rng(3).integers(0, 128, (1, 31))
    tolerance = VARIANTS[name]
    with webpte.load(export(name).path) as program:
        forward = program.method()
        results = []
        for chunks in CHUNKS:
            forward.reset()
            starts = np.cumsum((0, *chunks))
            assert starts[-1] == prompt.shape[1]
            for start, end in itertools.pairwise(starts):
                logits = forward(prompt[:, start:end], np.array([start]))
            results.append(logits)
            assert_close(logits, results[0], tolerance, tolerance, f"{name} in chunks of {chunks}")
    assert np.abs(results[0]).max() > 0.1


@pytest.mark.parametrize("name", ["llama_4w_emb4", "llama_8da4w_emb4"])
def test_llama_decode_step_creates_no_objects(name):
    exported = export(name)
    with webpte.load(exported.path) as program:
        forward = program.method()
        first, second, *others = exported.sequences[0]
        for step in (first, second):  # the first call at a shape builds its schedule
            forward(*step.inputs)
        for step in others:
            before, lowered = forward.counters.snapshot(), forward.lowerings
            forward(*step.inputs)
            done = forward.counters.since(before)
            assert (done.buffers, done.bind_groups, done.pipelines, done.constant_bytes) == (0, 0, 0, 0)
            assert (done.passes, done.submits) == (1, 1)
            assert forward.lowerings == lowered
