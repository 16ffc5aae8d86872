"""Rotary embeddings of a part of each head, with the tokens after the heads, in real exports against eager PyTorch."""

from __future__ import annotations

import pytest

import webpte
from tests.support.export.exporting import Exported, export
from tests.support.harness.cases import assert_close
from tests.support.harness.gate import slow_but
from tests.support.models import rotary as models
from tests.support.models.named import installed


def check(exported: Exported, called: int) -> None:
    """Equal to eager at the bound and below it, and by the rotary ops that this is about."""
    with webpte.load(exported.path) as program:
        names = [call.name for call in program.graph("forward").calls]
        assert names.count(models.HALVES) == called
        method = program.method()
        for step in exported.steps:
            for position, (got, want) in enumerate(zip(method.run(step.inputs), step.outputs, strict=True)):
                where = f"output {position}, inputs {[a.shape for a in step.inputs]}"
                assert_close(got, want, 2e-5, 2e-5, where)


def test_parts_of_a_head():
    check(export(models.partial_rotary), 3)


@pytest.mark.parametrize("sizes", slow_but([(0.25, 48)], [(0.25, 48), (0.45, 60)]), ids=str)
def test_gpt_neox(sizes):
    factor, hidden = sizes
    check(export(models.gpt_neox, factor=factor, hidden=hidden, transformers=installed("transformers")), 2)
