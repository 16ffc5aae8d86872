"""torch's map: the exporter writes a loop that counts, takes a row, computes and appends a row."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.writer import Method, pte_file
from webpte import container as c
from webpte.container import DType, JumpFalseCall, KernelCall

F32 = DType.FLOAT32


def tensor(*dims, dynamic=False):
    return c.TensorValue(F32, dims, tuple(range(len(dims))), place=(1, -1), dynamic=dynamic)


@pytest.fixture
def mapped(tmp_path):
    """[row * y for row in x], then relu of it all on the device."""
    values = [
        tensor(4, 5, dynamic=True),  # 0: x
        tensor(5),  # 1: y
        tensor(4, 5, dynamic=True),  # 2: rows so far
        c.IntValue(0),  # 3: the loop's counter, as the file sets it
        c.IntValue(0),  # 4: rows of x
        c.IntValue(0),  # 5: a dim
        tensor(5),  # 6: a row
        tensor(5),  # 7: times y
        c.IntValue(1),
        c.BoolValue(False),  # 9: whether it is over
        tensor(4, 5, dynamic=True),  # 10: the result
    ]
    instructions: list[c.Instruction] = [
        KernelCall("aten::sym_size.int", (0, 5, 4)),
        KernelCall("aten::select_copy.int_out", (0, 5, 3, 6, 6)),
        KernelCall("aten::mul.out", (6, 1, 7, 7)),
        KernelCall("executorch_prim::et_copy_index.tensor", (2, 7, 3)),
        KernelCall("executorch_prim::add.Scalar", (3, 8, 3)),
        KernelCall("executorch_prim::eq.Scalar", (3, 4, 9)),
        JumpFalseCall(9, 1),
        KernelCall("executorch_prim::sub.Scalar", (3, 4, 3)),
        KernelCall("aten::relu.out", (2, 10, 10)),
    ]
    pte_file(tmp_path / "p.pte", [Method("forward", values, [0, 1], [2, 3, 10], instructions)])
    with webpte.load(tmp_path / "p.pte") as program:
        yield program.method()


@pytest.mark.parametrize("rows", [4, 1, 3])
def test_map_each_count_returns_exact_rows(mapped, rows):
    random = np.random.default_rng(rows)
    for count in (rows, 4, rows):
        x, y = random.standard_normal((count, 5)).astype(np.float32), random.standard_normal(5).astype(np.float32)
        actual, counter, positive = mapped(x, y)
        assert np.array_equal(actual, x * y) and np.array_equal(positive, np.maximum(x * y, 0)) and counter == 0


def test_programs_without_loops_begin_with_nothing(tmp_path):
    """Only integers that are read before anything writes them are set at the start."""
    values = [tensor(4, dynamic=True), c.IntValue(7), c.IntValue(0), c.IntValue(0)]
    size = KernelCall("aten::sym_size.int", (0, 2, 3))
    pte_file(tmp_path / "p.pte", [Method("forward", values, [0], [3], [size])])
    with webpte.load(tmp_path / "p.pte") as program:
        assert [call.name for call in program.graph("forward").calls] == ["aten::sym_size.int"]
