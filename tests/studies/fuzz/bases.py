"""Small honest programs that mutants are made of: views, lists, scalars, caches, fused layers, kernels, jumps."""

from __future__ import annotations

import functools

import numpy as np

from tests.studies.fuzz.mutations import Base
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_bytes, span_of, vk_blob
from webpte import container as c
from webpte.container import DType, VkTensor, VkValue
from webpte.container import VkBool as B
from webpte.container import VkInt as I
from webpte.container import VkIntList as L

F32, I32 = DType.FLOAT32, DType.INT32
OPS = [
    "aten.add.Tensor",
    "aten.bmm.default",
    "aten.cat.default",
    "aten.clone.default",
    "aten.convolution.default",
    "aten.embedding.default",
    "aten.expand_copy.default",
    "aten.full.default",
    "aten.gelu.default",
    "aten.index.Tensor",
    "aten.linear.default",
    "aten.mean.dim",
    "aten.mm.default",
    "aten.native_layer_norm.default",
    "aten.permute_copy.default",
    "aten.relu.default",
    "aten.select_copy.int",
    "aten.slice_copy.Tensor",
    "aten.split_with_sizes_copy.default",
    "aten.unsqueeze_copy.default",
    "aten.view_copy.default",
    "et_vk.linear_q4gsw.default",
    "et_vk.rms_norm.default",
    "et_vk.select_as_symint.default",
    "sdpa_with_kv_cache.default",
    "sym_size.int",
    "update_cache.default",
]


def T(*dims: int, constant: int = -1, dtype: DType = F32) -> VkTensor:  # noqa: N802
    return VkTensor(dtype, dims, constant_id=constant)


def _method(values: list[VkValue], calls: list, inputs: list[int], outputs: list[int], constants: list) -> Method:
    borders = []
    for value_id in [*inputs, *outputs]:
        value = values[value_id]
        assert isinstance(value, VkTensor)
        order = tuple(range(len(value.dims)))
        borders.append(c.TensorValue(value.dtype, value.dims, order, dynamic=True, place=ALONE))
    ids = tuple(range(len(borders)))
    blob = vk_blob(values, calls, inputs, outputs, constants)
    call = c.DelegateCall(0, ids)
    return Method("forward", borders, ids[: len(inputs)], ids[len(inputs) :], [call], [DelegateBlob(blob)])


def views() -> bytes:
    values: list[VkValue] = [T(4, 6), L((4, 6)), T(4, 6), T(4, 6), L((1, 0)), T(6, 4), T(4, 4), I(1), T(4, 6)]
    calls = [
        ("aten.view_copy.default", (0, 1, 2)),
        ("aten.relu.default", (2, 3)),
        ("aten.permute_copy.default", (3, 4, 5)),
        ("aten.mm.default", (3, 5, 6)),
        ("aten.add.Tensor", (3, 0, 7, 8)),
    ]
    return pte_bytes([_method(values, calls, [0], [6, 8], [])])


def lists() -> bytes:
    values: list[VkValue] = [T(2, 3), T(2, 3), c.VkValueList((0, 1)), I(0), T(4, 3), c.VkSymInt(0), I(1)]
    values += [c.VkValueList((8, 9)), T(2, 3), T(2, 3), L((2, 2)), T(1, 4, 3), T(2, 4, 3), L((2, -1, -1)), B(False)]
    calls = [
        ("aten.cat.default", (2, 3, 4)),
        ("sym_size.int", (4, 3, 5)),
        ("aten.split_with_sizes_copy.default", (4, 10, 3, 7)),
        ("aten.unsqueeze_copy.default", (4, 3, 11)),
        ("aten.expand_copy.default", (11, 13, 14, 12)),
    ]
    return pte_bytes([_method(values, calls, [0, 1], [8, 9, 12], [])])


def layers() -> bytes:
    values: list[VkValue] = [T(5, 8), T(4, 8, constant=0), T(4, constant=1), T(5, 4), T(5, 4), T(5, 4), T(5, 4), I(1)]
    calls = [
        ("aten.linear.default", (0, 1, 2, 3)),
        ("aten.sigmoid.default", (3, 4)),
        ("aten.mul.Tensor", (3, 4, 5)),
        ("aten.add.Tensor", (5, 3, 7, 6)),
    ]
    return pte_bytes([_method(values, calls, [0], [6], [np.ones((4, 8), "f4"), np.ones(4, "f4")])])


def convolutions() -> bytes:
    values: list[VkValue] = [T(1, 2, 6, 6), T(3, 2, 3, 3, constant=0), c.VkNull(), L((1, 1)), L((1, 1)), L((1, 1))]
    values += [B(False), L((0, 0)), I(1), T(1, 3, 6, 6), T(1, 3, 6, 6), L((1, 3, 36)), T(1, 3, 36)]
    calls = [
        ("aten.convolution.default", (0, 1, 2, 3, 4, 5, 6, 7, 8, 9)),
        ("aten.relu.default", (9, 10)),
        ("aten.view_copy.default", (10, 11, 12)),
    ]
    return pte_bytes([_method(values, calls, [0], [12], [np.ones((3, 2, 3, 3), "f4")])])


def caches() -> bytes:
    values: list[VkValue] = [
        T(1, 3, 2, 4),
        T(1, 8, 2, 4, constant=0),
        T(1, dtype=I32),
        I(0),
        c.VkSymInt(0),
        T(1),
        T(1, 3, 2, 4),
    ]
    calls = [
        ("et_vk.select_as_symint.default", (2, 3, 3, 4)),
        ("update_cache.default", (0, 1, 4, 5)),
        ("aten.relu.default", (0, 6)),
    ]
    return pte_bytes([_method(values, calls, [0, 2], [6], [np.zeros((1, 8, 2, 4), "f4")])])


def kernels() -> bytes:
    def tensor(*dims: int, **more: object) -> c.TensorValue:
        return c.TensorValue(F32, dims, tuple(range(len(dims))), place=ALONE, **more)  # type: ignore[arg-type]

    weight = c.TensorValue(F32, (4,), (0,), data=span_of(np.ones(4, "f4")))
    values = [tensor(4), weight, tensor(4), tensor(4), c.IntValue(1), c.IntValue(0), c.NullValue(), c.BoolValue(True)]
    values += [tensor(4), c.IntValue(0)]
    instructions: list[c.Instruction] = [
        c.KernelCall("aten::add.out", (0, 1, 4, 2, 2)),
        c.KernelCall("aten::sym_size.int", (2, 5, 9)),
        c.JumpFalseCall(7, 4),
        c.KernelCall("aten::cumsum.out", (2, 5, 6, 3, 3)),
        c.MoveCall(2, 8),
    ]
    return pte_bytes([Method("forward", values, [0], [8, 9], instructions)])


@functools.cache
def bases() -> tuple[Base, ...]:
    return tuple(Base.of(make(), OPS) for make in (views, lists, layers, convolutions, caches, kernels))
