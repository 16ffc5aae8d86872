"""Programs with 4-bit and int8 weights and torchao's affine ops, exported by real ExecuTorch, against eager PyTorch."""

from __future__ import annotations

import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.models import quantized as models

PROGRAMS = [
    (models.weight_only, {}, 1e-5),
    (models.rounded_inputs, {}, 1e-5),
    (models.channels, {"bits": 4}, 1e-5),
    (models.channels, {"bits": 8}, 1e-5),
    (models.embeddings, {}, 0),
    (models.affine, {}, 0),  # scales, zeros and codes, of rows that are zero, huge or almost nothing
]


@pytest.mark.gpu
@pytest.mark.parametrize(("builder", "params", "tolerance"), PROGRAMS, ids=lambda p: getattr(p, "__name__", str(p)))
def test_equals_eager(builder, params, tolerance):
    exported = export(builder, **params)
    with webpte.load(exported.path) as program:
        method = program.method()
        assert not [call for call in program.graph("forward").calls if call.kernel], "all of it is delegated"
        for step in exported.steps:
            outputs = method.run(step.inputs)
            shapes = [a.shape for a in step.inputs]
            for position, (got, want) in enumerate(zip(outputs, step.outputs, strict=True)):
                assert got.dtype == want.dtype
                assert_close(got, want, tolerance, tolerance, f"output {position}, inputs {shapes}")
