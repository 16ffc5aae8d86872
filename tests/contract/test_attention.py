"""Attention and rotary ops in real exports, against eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import Exported, Step, export
from tests.support.harness.cases import assert_close
from tests.support.harness.errors import raises
from tests.support.models import attention_ops as models
from webpte.runtime import Method

TOLERANCE = 1e-5


def check(method: Method, steps: list[Step]) -> None:
    for step in steps:
        outputs = method.run(step.inputs)
        for position, (got, want) in enumerate(zip(outputs, step.outputs, strict=True)):
            assert_close(got, want, TOLERANCE, TOLERANCE, f"output {position}, inputs {[a.shape for a in step.inputs]}")


def check_all(exported: Exported) -> None:
    with webpte.load(exported.path) as program:
        method = program.method()
        for sequence in exported.sequences:
            method.reset()
            check(method, sequence)


STATELESS = (models.fused_attention, models.composed_attention, models.rotary_forms)
STATEFUL = (models.cached_attention, models.masked_cache, models.cache_writes)


@pytest.mark.parametrize("builder", STATELESS + STATEFUL, ids=lambda b: b.__name__)
def test_equals_eager(builder):
    check_all(export(builder))


def test_llama_with_halves_turned():
    """Prefill and decode in whole layers: the rotary table and the caches follow one live position."""
    check_all(export("llama", hf_rope=True))


def tokens_at(step: Step, tokens: int, position: int) -> tuple[np.ndarray, ...]:
    """Return the inputs of `step` cut or repeated to a number of tokens, at another position."""
    *tensors, _ = step.inputs
    expected = [np.resize(np.moveaxis(t, 1, 0), (tokens, t.shape[0], *t.shape[2:])) for t in tensors]
    return *(np.moveaxis(t, 0, 1).copy() for t in expected), np.array([position])


@pytest.mark.parametrize("builder", [models.cached_attention, models.masked_cache], ids=lambda b: b.__name__)
def test_attention_cache_full_refused_and_state_kept(builder):
    exported = export(builder)
    first, *rest = exported.sequences[0]
    with webpte.load(exported.path) as program:
        method = program.method()
        check(method, [first])
        for tokens, position in ((1, models.CONTEXT), (11, models.CONTEXT - 10), (1, -1)):
            with pytest.raises((webpte.GuardError, webpte.ShapeError)):
                method.run(tokens_at(first, tokens, position))
        check(method, rest)  # what the first step wrote is still there


def test_attention_cache_full_error_states_numbers():
    exported = export(models.cached_attention)
    values = ("sdpa_with_kv_cache", "3 tokens", "position 15", "cache of 16")
    with webpte.load(exported.path) as program, raises(webpte.GuardError, *values):
        program.method().run(tokens_at(exported.steps[0], 3, 15))


def test_rotary_table_too_short_is_refused():
    exported = export(models.rotary_forms)
    first = exported.steps[0]
    with webpte.load(exported.path) as program:
        method = program.method()
        inputs = list(first.inputs)
        inputs[2] = np.array([models.CONTEXT - 10])  # 11 tokens
        with raises(webpte.GuardError, "rotary", "position 6", "table of 16"):
            method.run(inputs)
        check(method, exported.steps)


def test_attention_new_position_lowers_nothing():
    """Attention and the rotary table read the position live."""
    exported = export(models.cached_attention)
    with webpte.load(exported.path) as program:
        method = program.method()
        decode = [step for step in exported.sequences[0] if step.inputs[0].shape[1] == 1]
        check(method, [exported.sequences[0][0], decode[0]])
        before = method.lowerings
        check(method, [decode[1]])
        assert method.lowerings == before
