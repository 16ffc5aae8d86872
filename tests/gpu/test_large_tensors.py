"""Activations past what the device binds at once: in parts they are what they are in one piece."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.cases.convolution.convolution import conv
from tests.support.harness.cases import OneOp, T, case, choosing
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType

BINDING = "max-storage-buffer-binding-size"
SMALL = 72 << 10
LIMITS = {BINDING: SMALL, "max-storage-buffers-per-shader-stage": 8}  # all that a browser grants
IMAGE = (2, 3, "h", 67)
SIZES = {"h": (61, 40, 9)}  # 98 KB of f32 at the bound, in two parts; the parts are the same at all sizes

CASES = [
    conv(IMAGE, (5, 3, 3, 3), 5, p=(1,), **SIZES),
    conv(IMAGE, (5, 3, 3, 3), 5, s=(2,), d=(2,), **SIZES),
    conv(IMAGE, (3, 1, 3, 3), 3, p=(1,), groups=3, **SIZES),
    conv((1, 3, "h", 67), (3, 4, 3, 3), 4, s=(2,), transposed=True, **SIZES),
    conv(IMAGE, (8, 3, 1, 1), 8, **SIZES),
    conv(IMAGE, (5, 3, 3, 3), 5, p=(1,), dtype="f16", atol=5e-3, rtol=5e-3, **SIZES),
    case("aten.max_pool2d_with_indices.default", T(*IMAGE), [3, 3], [2, 2], [1, 1], [1, 1], False, **SIZES),
    case("aten.avg_pool2d.default", T(*IMAGE), [3, 3], [1, 1], [1, 1], False, True, None, **SIZES),
    case("aten.gelu.default", T(*IMAGE), "none", **SIZES),
    case("aten.add.Tensor", T(*IMAGE), T(3, 1, 1), 2, **SIZES),
    case("aten.mul.Tensor", T(*IMAGE), T(*IMAGE), **SIZES),
    case(
        "aten._native_batch_norm_legit_no_training.default",
        *(T(*IMAGE), *(T(3, low=0.5, constant=True) for _ in range(4)), 0.1, 1e-5),
        **SIZES,
    ),
    case("aten.upsample_nearest2d.vec", T(1, 3, "h", 67), None, [2.0, 2.0], **SIZES),
    case("aten.constant_pad_nd.default", T(*IMAGE), [1, 2, 3, 0], 0.5, **SIZES),
    case("aten.cat.default", [T(*IMAGE), T(*IMAGE)], 1, **SIZES),
    case("aten.permute_copy.default", T(*IMAGE), [0, 2, 3, 1], **SIZES),
    case("aten.slice_copy.Tensor", T(*IMAGE), 3, 1, 60, 2, **SIZES),
    case("aten.sum.dim_IntList", T(*IMAGE), [2, 3], False, None, atol=1e-3, **SIZES),
    case("aten._softmax.default", T("n", 301), -1, False, n=(67, 29, 5)),
    case("aten.native_layer_norm.default", T("n", 301), [301], T(301), T(301), 1e-5, n=(67, 29, 5)),
    case("aten.linear.default", T("n", 64), T(67, 64, constant=True), T(67, constant=True), n=(301, 29, 1), atol=1e-4),
    case("aten.bmm.default", T(2, "n", 61), T(2, 61, 67), n=(163, 29, 1), atol=1e-4),
    case(
        "aten.embedding.default",
        T(307, 64, constant=True),
        T("n", dtype="i32", high=306, low=0),
        0,
        False,
        False,
        n=(13, 2),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_equal_whole(case, tmp_path, device):
    program = OneOp(case)
    path = tmp_path / "case.pte"
    program.write(path)
    with choosing(case.variant), webpte.load(path, limits=LIMITS) as split:
        method = split.method()
        for sizes in case.sizes:
            program.check(method, sizes)
        program.check(method, case.sizes[0])
        assert any(kernel.parts for kernel in method.plan.kernels)
        assert method.plan.limits[BINDING] <= SMALL


def write_net(path) -> None:
    """max_pool(relu(conv(x))) + 1 and its sum: buffers that large and small tensors share."""
    weight = np.random.default_rng(1).standard_normal((8, 3, 3, 3)).astype(np.float32)
    f32 = DType.FLOAT32
    values = [
        c.VkTensor(f32, (1, 3, 61, 67)),
        c.VkTensor(f32, weight.shape, constant_id=0),
        c.VkNull(),
        c.VkIntList((1, 1)),
        c.VkBool(False),
        c.VkIntList((0, 0)),
        c.VkInt(1),
        c.VkTensor(f32, (1, 8, 61, 67)),
        c.VkTensor(f32, (1, 8, 61, 67)),
        c.VkIntList((2, 2)),
        c.VkTensor(f32, (1, 8, 31, 34)),
        c.VkTensor(DType.INT32, (1, 8, 31, 34)),
        c.VkValueList((10, 11)),
        c.VkIntList((2, 3)),
        c.VkTensor(f32, (1, 8)),
        c.VkTensor(f32, (1, 8)),
        c.VkNull(),
    ]
    calls = [
        ("aten.convolution.default", (0, 1, 2, 3, 3, 3, 4, 5, 6, 7)),
        ("aten.relu.default", (7, 8)),
        ("aten.max_pool2d_with_indices.default", (8, 9, 9, 3, 3, 4, 12)),
        ("aten.sum.dim_IntList", (10, 13, 4, 16, 14)),
        ("aten.tanh.default", (14, 15)),
    ]
    simple_pte(path, values, calls, [0], [8, 10, 15], [weight])


def test_split_activations_net_equals_whole(tmp_path):
    write_net(tmp_path / "net.pte")
    x = np.random.default_rng(2).standard_normal((1, 3, 61, 67)).astype(np.float32)
    outputs = []
    for limits in ({}, LIMITS):
        with webpte.load(tmp_path / "net.pte", limits=limits) as program:
            method = program.method()
            outputs.append([*method.run([x]), *method.run([-x])])
            assert any(kernel.parts for kernel in method.plan.kernels) == bool(limits)
    for whole, split in zip(*outputs, strict=True):
        np.testing.assert_array_equal(split, whole)
