"""Statically quantized programs, exported by real ExecuTorch, against the quantized model in eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.harness.gate import slow_but
from tests.support.models import int8 as models

MIN_EQUAL_SHARE = 0.995  # of all codes equal eager's; the others are neighbors


def step_of(values: np.ndarray) -> float:
    """Return the distance between neighboring codes: the least between any two values."""
    return float(np.diff(np.unique(values)).min(initial=np.inf))


BUILDERS = slow_but([models.network, models.layers], [models.network, models.transformer, models.layers])


@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.__name__)
def test_codes_equal_eager(builder):
    exported = export(builder)
    equal = total = 0
    with webpte.load(exported.path) as program:
        method = program.method()
        goldens = zip(*(step.outputs for step in exported.steps), strict=True)
        scales = [step_of(np.concatenate([a.ravel() for a in outputs])) for outputs in goldens]
        for step in exported.steps:
            for got, want, scale in zip(method.run(step.inputs), step.outputs, scales, strict=True):
                where = f"output of {want.shape}, inputs {[a.shape for a in step.inputs]}"
                assert len(np.unique(want)) > 1, f"{where}: nothing to compare"
                assert_close(got, want, 1.001 * scale, 0, where)
                equal += int((np.abs(got - want) < 0.01 * scale).sum())
                total += want.size
    assert equal >= MIN_EQUAL_SHARE * total, f"{total - equal} of {total} codes differ"


def test_float_results_of_codes():
    exported = export(models.float_heads)
    with webpte.load(exported.path) as program:
        for step in exported.steps:
            for got, want in zip(program.method().run(step.inputs), step.outputs, strict=True):
                assert_close(got, want, 1e-5, 1e-5, f"inputs {[a.shape for a in step.inputs]}")


def test_ops_called_by_name():
    exported = export(models.codes)
    with webpte.load(exported.path) as program:
        for step in exported.steps:
            outputs = program.method().run(step.inputs)
            for position, (got, want) in enumerate(zip(outputs, step.outputs, strict=True)):
                where = f"output {position}, inputs {[a.shape for a in step.inputs]}"
                exact = want.dtype.kind in "iu"
                assert got.dtype == want.dtype, where
                assert_close(got, want, 0, 0 if exact else 1e-6, where)
