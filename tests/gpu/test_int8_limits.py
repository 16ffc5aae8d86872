"""Int8 weights past what the device binds at once, and a program that cannot be right."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.cases.q8.q8ta import float_linear, linear
from tests.support.harness.cases import OneOp
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType

BINDING = "max-storage-buffer-binding-size"
SMALL = 16 << 10
# Rows of weights end at any address; there are at least 60 KB of them.
CASES = [
    linear(("m", 64), 1004, m=(5, 3, 1)),
    linear(("m", 100), 1004, biased=False, activation="relu", m=(5, 3, 1)),
    float_linear(("m", 100), 1004, m=(3, 2, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_equal_whole(case, tmp_path, device):
    program = OneOp(case)
    program.write(tmp_path / "case.pte")
    with webpte.load(tmp_path / "case.pte", limits={BINDING: SMALL}) as loaded:
        method = loaded.method()
        for sizes in case.sizes:
            program.check(method, sizes)
        before = method.counters.snapshot()
        program.check(method, case.sizes[0])
        assert method.counters.since(before).dispatches >= 4
        assert method.plan.limits["max-storage-buffer-binding-size"] <= SMALL


def test_partial_word_columns_take_one_dispatch(tmp_path, device):
    """Several would share words of the output: one binds all parts of the weights."""
    case = linear(("m", 64), 1003, m=(5, 3, 1))
    program = OneOp(case)
    program.write(tmp_path / "case.pte")
    with webpte.load(tmp_path / "case.pte", limits={BINDING: SMALL}) as loaded:
        method = loaded.method()
        for sizes in case.sizes:
            program.check(method, sizes)
        assert all(max(kernel.parts) == 4 for kernel in method.plan.kernels)
        assert method.plan.limits["max-storage-buffer-binding-size"] <= SMALL


def test_float_results_declared_as_codes_are_refused_with_a_remedy(tmp_path, device):
    """ExecuTorch 1.5 writes such a program where a linear layer with float results has no bias."""
    tensors: list[np.ndarray] = [np.zeros((8, 16), np.int8), np.zeros(8, np.int32), np.ones(8, np.float32)]
    values = [
        c.VkTensor(DType.INT8, (3, 16)),
        c.VkDouble(0.02),
        c.VkInt(9),
        *(
            c.VkTensor(dtype, a.shape, constant_id=i)
            for i, (a, dtype) in enumerate(zip(tensors, (DType.INT8, DType.INT32, DType.FLOAT32), strict=True))
        ),
        c.VkNull(),
        c.VkTensor(DType.INT8, (3, 8)),
    ]
    path = tmp_path / "mistyped.pte"
    simple_pte(path, values, [("et_vk.linear_q8ta_q8csw.default", range(8))], [0], [7], tensors)
    with webpte.load(path) as loaded, raises(webpte.GraphError, "i8[3, 8]", "ExecuTorch 1.5"):
        loaded.method()
