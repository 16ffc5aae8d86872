"""Calls of quantized ops whose arguments contradict each other are refused, with the numbers."""

from __future__ import annotations

import pytest

from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte import Error, load
from webpte import container as c
from webpte.container import DType
from webpte.wgsl import Caps

F32, U8, I8, I32 = DType.FLOAT32, DType.UINT8, DType.INT8, DType.INT32
Q4, TABLE, CHOOSE = (
    "et_vk.linear_q4gsw.default",
    "et_vk.embedding_q4gsw.default",
    "torchao.choose_qparams_affine.default",
)
SCALARS = {bool: c.VkBool, int: c.VkInt, float: c.VkDouble, str: c.VkString}
X, CODES, SCALES = (F32, 3, 64), (U8, 8, 32), (F32, 2, 8)
RATES = (0.1, 0.9, 0.99, 1e-8, 0.0, 1.0, 1.0)
REFUSED = [
    (Q4, [(F32, 3, 96), CODES, SCALES, 32, None], (F32, 3, 8), "operand_mismatch", ["96 columns"]),
    (Q4, [X, CODES, SCALES, 16, None], (F32, 3, 8), "operand_mismatch", ["groups of 16 "]),
    (Q4, [X, CODES, SCALES, 0, None], (F32, 3, 8), "operand_mismatch", ["groups of 0 "]),
    (Q4, [X, CODES, (F32, 2, 7), 32, None], (F32, 3, 8), "operand_mismatch", ["scales [2, 7]"]),
    (Q4, [X, CODES, SCALES, 32, (F32, 7)], (F32, 3, 8), "operand_mismatch", ["bias [7]", "8 columns"]),
    ("et_vk.linear_qcs4w.default", [X, CODES, (F32, 7)], (F32, 3, 8), "operand_mismatch", ["scales [7]"]),
    (
        "aten._weight_int8pack_mm.default",
        [X, (I8, 8, 63), (F32, 8)],
        (F32, 3, 8),
        "operand_mismatch",
        ["weight [8, 63]"],
    ),
    (TABLE, [CODES, (F32, 8, 3), 32, (I32, 5), True], (F32, 5, 64), "operand_mismatch", ["f32[8, 3]", "groups of 32 "]),
    (TABLE, [CODES, (F32, 8, 2), 31, (I32, 5), True], (F32, 5, 64), "operand_mismatch", ["groups of 31 "]),
    (TABLE, [CODES, (F32, 8, 2), 32, (F32, 5), True], (F32, 5, 64), "dtype", ["i32", "f32[5]"]),
    (
        "quantized_decomposed.embedding_4bit.dtype",
        [CODES, (F32, 8, 2), None, 0, 15, (I32, 5), None],
        (F32, 5, 64),
        "code_range",
        ["0 to 15"],
    ),
    (
        "torchao.quantize_affine.default",
        [X, [1, 60], (F32, 3), (I8, 3), None, -128, 127],
        (I8, 3, 64),
        "block_size",
        ["[1, 60]", "[3, 64]"],
    ),
    (
        "torchao.dequantize_affine.default",
        [(I8, 3, 64), [1, 32], (F32, 3), None, None, None, None, None],
        (F32, 3, 64),
        "operand_mismatch",
        ["got 3", "6 blocks"],
    ),
    ("torchao.quantize_affine.default", [X, [1, 64], (F32, 3), (I8, 3), None, 0, 1], (F32, 3, 64), "dtype", ["f32"]),
    (
        "et_vk.fused_ce.default",
        [X, (I32, 4), 3.0],
        [(F32,), (F32, 3, 64)],
        "operand_mismatch",
        ["i32[4]", "f32[3, 64]"],
    ),
    ("et_vk.linear_dW.default", [X, (F32, 4, 5)], (F32, 64, 5), "operand_mismatch", ["f32[3, 64]", "f32[4, 5]"]),
    (
        "et_vk.linear_q4gsw_backward.default",
        [(F32, 3, 7), CODES, SCALES, 32],
        (F32, 3, 64),
        "operand_mismatch",
        ["[3, 7]", "[8, 32]"],
    ),
    (
        "et_vk.q4gsw_requant.default",
        [(F32, 8, 64), (F32, 1, 8), 32],
        (U8, 8, 32),
        "operand_mismatch",
        ["[1, 8]", "[8, 64]"],
    ),
    (
        "et_vk.adamw_step.default",
        [X, X, (F32, 3, 63), X, *RATES],
        [X, X, X],
        "operand_mismatch",
        ["f32[3, 64]", "f32[3, 63]"],
    ),
    (
        CHOOSE,
        [X, "SOMEHOW", [1, 64], None, -128, 127, None, None, None, False],
        [(F32, 3), (I8, 3)],
        "unknown_choice",
        ["SOMEHOW", "ASYMMETRIC"],
    ),
]


class Values:
    """The values of a delegate with one call, collected as its arguments are described."""

    def __init__(self) -> None:
        self.all: list[c.VkValue] = []
        self.inputs: list[int] = []

    def add(self, value: c.VkValue) -> int:
        self.all.append(value)
        return len(self.all) - 1

    def tensor(self, dtype: DType, *dims: int) -> int:
        return self.add(c.VkTensor(dtype, dims))

    def argument(self, value) -> int:
        if isinstance(value, tuple):
            self.inputs.append(self.tensor(*value))
            return self.inputs[-1]
        if isinstance(value, list):
            return self.add(c.VkIntList(tuple(value)))
        return self.add(c.VkNull() if value is None else SCALARS[type(value)](value))


@pytest.mark.parametrize(
    ("op", "arguments", "result", "code", "expected"), REFUSED, ids=[f"{r[0]}: {r[3]} {r[4][0]}" for r in REFUSED]
)
def test_quantized_layer_with_wrong_operands_is_refused(op, arguments, result, code, expected, tmp_path):
    values = Values()
    ids = [values.argument(value) for value in arguments]
    outs = [values.tensor(*spec) for spec in (result if isinstance(result, list) else [result])]
    out = outs[0] if len(outs) == 1 else values.add(c.VkValueList(tuple(outs)))
    simple_pte(tmp_path / "wrong.pte", values.all, [(op, [*ids, out])], values.inputs, outs)
    with load(tmp_path / "wrong.pte") as program, raises(Error, op, *expected, code=code):
        program.plan("forward", Caps())
