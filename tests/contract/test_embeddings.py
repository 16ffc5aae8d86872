"""Quantized tables outside delegates, in real exports against eager PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import Exported, export
from tests.support.harness.cases import assert_close
from tests.support.harness.gate import slow_but
from tests.support.models import embeddings as models


def check(exported: Exported, called: dict[str, int]) -> None:
    """Equal to eager at the bound and below it, with nothing on the CPU."""
    with webpte.load(exported.path) as program:
        names = [call.name for call in program.graph("forward").calls if call.kernel]
        assert {name: names.count(name) for name in called} == called
        method = program.method()
        assert not method.plan.cpu_calls
        for step in exported.steps:
            for position, (got, want) in enumerate(zip(method.run(step.inputs), step.outputs, strict=True)):
                close = 2e-3 if want.dtype == np.float16 else 1e-6  # torch rounds each product to the scales' dtype
                where = f"output {position}, inputs {[a.shape for a in step.inputs]}"
                assert_close(got, want, close, close, where)


def test_tables():
    plain, with_dtype = (
        {f"quantized_decomposed::{op}.{overload}": n for op in models.OPS}
        for overload, n in (("out", 5), ("dtype_out", 1))
    )
    del with_dtype["quantized_decomposed::embedding_4bit.dtype_out"]  # in a delegate
    check(export(models.tables), plain | with_dtype)


@pytest.mark.parametrize("group", slow_but([32], [0, 32]))
def test_real_widths(group):
    check(export(models.real_widths, group=group), {"quantized_decomposed::embedding_byte.dtype_out": 1})
