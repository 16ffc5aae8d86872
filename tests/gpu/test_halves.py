"""f16 on devices whose shaders have none: values are kept in words, and every one of them is an f16."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.cases.matmul.epilogue import LINEARS, PRODUCTS
from tests.support.harness.cases import OneOp, T, case, run_case
from tests.support.harness.configurations import CONFIGURATIONS
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType
from webpte.device import adapter_caps
from webpte.wgsl import Kernel, render, uses_f16

PLAIN = (5, None, None, None, False, None)  # to f16
DEVICES = {"as it is": "", "without": CONFIGURATIONS["no-f16"].device}


def _numbers() -> np.ndarray:
    """Return all halves, what lies between two of them, and the floats beside that; numbers no half can hold."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middles = (halves[:-1] + halves[1:]) / 2
    tails = np.array([65519.996, 65520, 65536, 1e5, 3e38, np.inf, 2**-25, 2**-26, 1e-30, 1e-42], np.float32)
    every = np.concatenate([halves, middles, np.nextafter(middles, 0), np.nextafter(middles, np.inf), tails])
    return np.concatenate([every, -every]).astype(np.float32)


def _made_by(case, tmp_path, *inputs):
    OneOp(case).write(tmp_path / "case.pte")
    with webpte.load(tmp_path / "case.pte") as program:
        return program.method().run(inputs)[0], program.plan().kernels


def _uses_f16(kernels: tuple[Kernel, ...]) -> bool:
    return any(uses_f16(render(kernel)) for kernel in kernels)


@pytest.mark.parametrize("device", DEVICES)
def test_f16_conversion_rounds_to_nearest(device, tmp_path, monkeypatch):
    monkeypatch.setenv("WEBPTE_DEVICE", DEVICES[device])
    numbers = _numbers()
    actual, kernels = _made_by(case("aten._to_copy.default", T(len(numbers)), *PLAIN), tmp_path, numbers)
    assert _uses_f16(kernels) == ("shader-f16" in adapter_caps().features)
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16)
    assert actual.dtype == np.float16
    np.testing.assert_array_equal(actual.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("device", DEVICES)
def test_f16_value_between_steps_is_exact(device, tmp_path, monkeypatch):
    """What is computed in one kernel is what two kernels would have computed, subnormals included."""
    monkeypatch.setenv("WEBPTE_DEVICE", DEVICES[device])
    numbers = _numbers()
    text = "f16 webpte.copy x0\nf32 webpte.copy v0\n= v1"
    actual, _ = _made_by(case("webpte.elementwise", text, [T(len(numbers))], []), tmp_path, numbers)
    with np.errstate(over="ignore"):
        expected = numbers.astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(actual, expected)


LARGE = {"aten.mm.default": (300, ("x", "x")), "aten.exp.default": (12, ("x",)), "aten.neg.default": (7, ("x",))}


@pytest.mark.parametrize("op", LARGE)
def test_f16_overflow_is_infinite_for_each_consumer(op, tmp_path, monkeypatch):
    """1 / f16(1e5) is 0; in f32 it would be 1e-5."""
    monkeypatch.setenv("WEBPTE_DEVICE", DEVICES["without"])
    value, args = LARGE[op]
    values = [c.VkTensor(DType.FLOAT16, (16, 16)) for _ in range(3)]
    calls = [(op, [0 for _ in args] + [1]), ("aten.reciprocal.default", [1, 2])]
    simple_pte(tmp_path / "two.pte", values, calls, [0], [2], [])
    with webpte.load(tmp_path / "two.pte", passes=()) as program:
        assert not _uses_f16(program.plan().kernels)
        (actual,) = program.method().run([np.full((16, 16), value, np.float16)])
    np.testing.assert_array_equal(actual, np.full((16, 16), -1 / 7 if op == "aten.neg.default" else 0, np.float16))


def test_fused_products_compile_without_f16(tmp_path, monkeypatch):
    monkeypatch.setenv("WEBPTE_DEVICE", DEVICES["without"])
    halves = [fused for fused in (*LINEARS, *PRODUCTS) if any(t.dtype == "f16" for t in fused.tensors)]
    assert len(halves) >= 3
    for fused in halves:
        OneOp(fused).write(tmp_path / "case.pte")
        with webpte.load(tmp_path / "case.pte") as program:
            assert not _uses_f16(program.plan().kernels)
        run_case(fused, tmp_path)
