"""Layers that choose the scales of their rows have the bits of those that another call has chosen for."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import webpte
from tests.cases.q4.linear_q4 import one_sided
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkBool, VkDouble, VkInt, VkIntList, VkNull, VkString, VkTensor, VkValueList
from webpte.device import adapter_caps
from webpte.fusion import PASSES

CHOOSE, LAYER = "torchao.choose_qparams_affine.default", "et_vk.linear_dq8ca_q4gsw.default"
NORM = "et_vk.rms_norm.default"
BOUND, COLUMNS = 19, 13
SEPARATE = tuple(name for name in PASSES if name != "row-qparams")
WITHOUT_NORM = tuple(name for name in PASSES if name != "norm-linears")


def write_layer(path, inner, group, normed, dtype):
    """Write forward(x) = a layer of the rows of x in int8, after a norm if `normed`."""
    random = np.random.default_rng(inner)
    constants = [
        random.integers(0, 256, (COLUMNS, -(-inner // 8) * 4)).astype(np.uint8),
        random.uniform(0.01, 0.1, (inner // group, COLUMNS)).astype(np.float32),
        random.normal(size=inner).astype(dtype.numpy),
    ]
    f32 = DType.FLOAT32
    values = [
        VkTensor(dtype, (BOUND, inner)),
        VkTensor(dtype, (BOUND, inner)),  # normalized
        VkTensor(DType.UINT8, constants[0].shape, constant_id=0),
        VkTensor(f32, constants[1].shape, constant_id=1),
        VkTensor(dtype, (inner,), constant_id=2),
        VkTensor(f32, (BOUND,)),
        VkTensor(DType.INT8, (BOUND,)),
        VkTensor(dtype, (BOUND, COLUMNS)),
        VkDouble(1e-5),
        VkString("ASYMMETRIC"),
        VkIntList((1, inner)),
        VkNull(),
        VkInt(-128),
        VkInt(127),
        VkBool(False),
        VkInt(group),
        VkValueList((5, 6)),
    ]
    x = 1 if normed else 0
    calls: list[tuple[str, tuple[int, ...]]] = [
        (NORM, (0, 4, 8, 1)),
        (CHOOSE, (x, 9, 10, 11, 12, 13, 8, 11, 11, 14, 16)),
        (LAYER, (x, 5, 6, 2, 11, 3, 15, 11, 7)),
    ][0 if normed else 1 :]
    simple_pte(path, values, calls, inputs=[0], outputs=[7], constants=constants, dynamic=True)


@pytest.mark.parametrize("kind", ["cpu", "gpu", "gpu without subgroups"])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("inner", "group", "dtype"),
    [(56, 8, DType.FLOAT32), (1184, 32, DType.FLOAT32), (29, 29, DType.FLOAT32), (608, 32, DType.FLOAT16)],
    ids=str,
)
def test_rows_have_the_bits_of_two_calls(inner, group, dtype, normed, kind, tmp_path, device, monkeypatch):
    if kind != "cpu":
        monkeypatch.setenv("WEBPTE_DEVICE", "gpu")
    if kind == "gpu without subgroups":
        caps = dataclasses.replace(adapter_caps(), subgroup=0)
        monkeypatch.setattr("webpte.runtime.program.adapter_caps", lambda: caps)
    write_layer(tmp_path / "layer.pte", inner, group, normed, dtype)
    x = one_sided((BOUND, inner)).astype(dtype.numpy)
    results, dispatches = {}, {}
    for passes in (tuple(PASSES), SEPARATE, WITHOUT_NORM):
        with webpte.load(tmp_path / "layer.pte", passes=passes, tune="off") as program:
            method = program.method()
            before = method.counters.snapshot()
            results[passes] = [method(x[:rows]) for rows in (BOUND, 5, 1)]
            dispatches[passes] = method.counters.since(before).dispatches
    joined, separate, without_norm = results.values()
    for result, *others in zip(joined, separate, without_norm, strict=True):
        for other in others:
            np.testing.assert_array_equal(result, other)
    assert dispatches[SEPARATE] - dispatches[tuple(PASSES)] == 3 * (2 if normed else 1)
    assert dispatches[WITHOUT_NORM] - dispatches[tuple(PASSES)] == (3 if normed else 0)
