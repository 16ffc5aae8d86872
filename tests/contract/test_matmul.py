"""Matrix products and convolutions, exported by real ExecuTorch, against eager PyTorch at every live size."""

from __future__ import annotations

import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.models import matmul as models_matmul

BUILDERS = {
    models_matmul.products: 1e-5,
    models_matmul.convolutions_1d: 1e-5,
    models_matmul.convolutions_2d: 1e-5,
    models_matmul.convolutions_batched: 1e-5,
    models_matmul.volumes: 1e-5,
    models_matmul.halves: 4e-3,
}


@pytest.mark.gpu
@pytest.mark.parametrize("builder", BUILDERS, ids=lambda b: b.__name__)
def test_equals_eager(builder):
    exported = export(builder)
    with webpte.load(exported.path) as program:
        method = program.method()
        for step in exported.steps:
            outputs = method.run(step.inputs)
            shapes = [a.shape for a in step.inputs]
            for position, (got, want) in enumerate(zip(outputs, step.outputs, strict=True)):
                assert_close(got, want, BUILDERS[builder], BUILDERS[builder], f"output {position}, inputs {shapes}")
