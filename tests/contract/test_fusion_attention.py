"""Attention that rotates its queries and keys itself computes what the two calls computed apart."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close, choosing
from tests.support.harness.errors import raises
from webpte.fusion.attention import ROTARY_ATTENTION
from webpte.fusion.llm_rewrites import with_half_caches
from webpte.ops.attention.attention_rows import VARIANTS as MANY
from webpte.ops.attention.attention_token import VARIANTS as ONE

PASS = "rotary-attention"
CHUNKS = (17, 1, 1, 30, 2, 3, 1)  # of the 64 positions of the tiny Llama, which takes at most 31 at once
LAYERS = 2


def logits(path, rewrite=None, **options):
    """The logits after every chunk of one text, each at its position in the cache."""
    with webpte.load(path, **options) as program:
        method = program.method("forward", rewrite)
        position, rows = 0, []
        for count in CHUNKS:
            tokens = (np.arange(position, position + count) * 37 + 11)[None] % 128
            rows.append(method(tokens, np.array([position])))
            position += count
        return np.concatenate(rows), method.plan


@pytest.fixture(params=[False, True], ids=["neighbours", "halves"])
def llama(request):
    return export("llama", hf_rope=request.param).path


def test_rotary_fusion_same_logits(llama):
    off, plan = logits(llama, passes=())
    on, fused = logits(llama, passes=(PASS,))
    assert_close(on, off, 2e-6, 2e-6, "fused")
    assert plan.passes == {} and fused.passes[PASS] >= LAYERS
    names = Counter(call.name for call in fused.graph.calls)
    assert names[ROTARY_ATTENTION] == LAYERS and "sdpa_with_kv_cache.default" not in names


def test_rotary_fusion_slices_no_tables(llama):
    _, plan = logits(llama, passes=(PASS,))
    assert not [call.name for call in plan.graph.calls if "slice" in call.name]


def test_rotary_fusion_one_dispatch_per_attention(llama):
    with webpte.load(llama, passes=(PASS,)) as program:
        planner = program.planner()
    plan = planner.plan
    tokens, position = plan.graph.inputs
    for count, dispatches in ((1, 1), (5, 2)):
        (schedule,) = planner.lower({tokens: (1, count), position: (1,)})
        calls = [c for c in schedule.calls if plan.graph.call(c.step).name == ROTARY_ATTENTION]
        assert [len(c.dispatches) for c in calls] == [dispatches] * LAYERS


@pytest.mark.parametrize(
    "variant", dict.fromkeys(variant.name for variant in (*ONE, *MANY))
)  # "broadcast" is a name of both
@pytest.mark.parametrize("halves", [False, True])
def test_attention_variants_equal_eager(halves, variant):
    exported = export("llama", hf_rope=halves)
    with choosing(variant), webpte.load(exported.path) as program:
        method = program.method()
        assert any(variant in job.names for job in method.planner.examples)
        for sequence in exported.sequences:
            method.reset()
            for step in sequence:
                (got,), (want,) = method.run(step.inputs), step.outputs
                assert_close(got, want, 1e-5, 1e-5, f"{variant}, {[a.shape for a in step.inputs]}")


def test_caches_of_halves(llama):
    """Keys and values are rounded to 11 bits when they are cached, by whichever kernel caches them."""
    off, _ = logits(llama, with_half_caches, passes=())
    on, plan = logits(llama, with_half_caches, passes=(PASS,))
    exact, _ = logits(llama, passes=())
    states = [plan.graph.tensor(t) for buffer in plan.buffers if buffer.kind == "state" for t in buffer.tensors]
    assert {spec.dtype.short for spec in states} == {"f16"} and len(states) == 2 * LAYERS
    assert_close(on, off, 2e-5, 2e-5, "fused")
    assert_close(on, exact, 2e-2, 2e-2, "halves")


def test_rotary_fusion_refused_call_changes_nothing(llama):
    with webpte.load(llama) as program:
        method = program.method()
        prompt = np.arange(9)[None]
        first = method(prompt, np.array([0]))
        for position in (60, -1):
            with raises(webpte.GuardError, ROTARY_ATTENTION, f"position {position}"):
                method(prompt, np.array([position]))
        again = method(prompt[:, -1:], np.array([8]))
    assert_close(again, first, 2e-6, 2e-6, "the last token again")
