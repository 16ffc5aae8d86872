"""Movement, indexing and resampling in programs exported by real ExecuTorch, against eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.models import movement as models
from webpte.plan import PlanSegment

EXACT = (models.movement, models.movement_dynamic, models.indexing, models.indexing_dynamic)
ROUNDED = (models.images, models.images_dynamic)


@pytest.mark.parametrize(
    ("builder", "tolerance"),
    [(b, 0) for b in EXACT] + [(b, 1e-5) for b in ROUNDED],
    ids=lambda p: getattr(p, "__name__", ""),
)
def test_equals_eager(builder, tolerance):
    exported = export(builder)
    with webpte.load(exported.path) as program:
        method = program.method()
        stages = [stage for block in method.plan.flow.blocks for stage in block.stages]
        assert len(stages) == 1 and isinstance(stages[0], PlanSegment)  # what no delegate took runs on the device too
        for step in exported.steps:
            outputs = method.run(step.inputs)
            for position, (got, want) in enumerate(zip(outputs, step.outputs, strict=True)):
                where = f"output {position}, inputs {[a.shape for a in step.inputs]}"
                assert np.asarray(got).dtype == want.dtype, where
                assert_close(np.asarray(got), want, tolerance, tolerance, where)
