"""Reductions, norms and pools, exported by real ExecuTorch, against eager PyTorch at every live size."""

from __future__ import annotations

import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.models import reductions as models_reductions

BUILDERS = [
    models_reductions.reductions,
    models_reductions.indices_and_integers,
    models_reductions.norms,
    models_reductions.images,
    models_reductions.pools_dynamic,
]


@pytest.mark.gpu
@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.__name__)
def test_equals_eager(builder):
    exported = export(builder)
    with webpte.load(exported.path) as program:
        method = program.method()
        for step in exported.steps:
            shapes = [a.shape for a in step.inputs]
            for position, (got, want) in enumerate(zip(method.run(step.inputs), step.outputs, strict=True)):
                where = f"output {position}, inputs {shapes}"
                assert got.dtype == want.dtype, where
                assert_close(got, want, 1e-5, 1e-5, where)
