"""Kernels of experts as a GPU runs them: neighbors share a sum."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.cases.experts.experts import mixture
from tests.support.harness.cases import OneOp, run_case
from webpte.ops.experts import experts


@pytest.fixture(autouse=True)
def lanes(monkeypatch):
    monkeypatch.setattr(experts, "CPU_LANES", experts.GPU_LANES)


@pytest.mark.parametrize("group", [32, 0])
def test_experts_by_lanes_equal_reference_alone_and_sorted(group, device, tmp_path):
    subject = mixture((4, 2, 288, 96), group=group, n=(11, 3, 1))  # sorted by expert from four rows on
    run_case(subject, tmp_path)
    random = np.random.default_rng(7)
    inputs = [t.array({"n": 11}, random) for t in subject.tensors if not t.constant]
    OneOp(subject).write(tmp_path / "op.pte")
    with webpte.load(tmp_path / "op.pte", tune="off") as program:
        method = program.method()
        alone = [method.run([x[row : row + 1] for x in inputs])[0] for row in range(11)]
        together = method.run(inputs)[0]
    assert np.concatenate(alone).tobytes() == together.tobytes()
