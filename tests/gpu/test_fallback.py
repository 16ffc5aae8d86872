"""An op without a kernel: refused by default, run on the CPU when asked for, never silently."""

from __future__ import annotations

import logging

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkInt, VkTensor
from webpte.debug.check import check_file
from webpte.lowering import op, registered, unregister

F32 = DType.FLOAT32


@pytest.fixture
def unsupported(tmp_path):
    """relu(sin_degrees(x) + x), where only the CPU knows `test.sin_degrees.default`."""

    @op("test.sin_degrees.default", dtypes=frozenset())  # no dtype: no kernel, only a reference
    def sin_degrees(cx: object, self: object, *, out: object) -> None:
        raise AssertionError("never lowered")

    sin_degrees.reference(lambda self: np.sin(np.deg2rad(self)))
    values = [VkTensor(F32, (11, 7)), VkTensor(F32, (11, 7)), VkInt(1), VkTensor(F32, (11, 7)), VkTensor(F32, (11, 7))]
    calls = [
        ("test.sin_degrees.default", (0, 1)),
        ("aten.add.Tensor", (1, 0, 2, 3)),
        ("aten.relu.default", (3, 4)),
    ]
    simple_pte(tmp_path / "p.pte", values, calls, [0], [4], dynamic=True)
    yield tmp_path / "p.pte"
    unregister(sin_degrees)
    assert "test.sin_degrees.default" not in registered()


def test_refused_by_default_with_both_remedies(unsupported):
    with webpte.load(unsupported) as program, raises(webpte.UnsupportedError, "test.sin_degrees.default"):
        program.method()


@pytest.mark.parametrize("fallback", [None, "cpu"])
def test_unknown_op_without_cpu_kernel_does_not_advise_the_fallback(tmp_path, fallback):
    name = "et_vk.of_another_release.default"
    simple_pte(tmp_path / "p.pte", [VkTensor(F32, (5,)), VkTensor(F32, (5,))], [(name, (0, 1))], [0], [1])
    with (
        webpte.load(tmp_path / "p.pte", fallback=fallback) as program,
        raises(webpte.UnsupportedError, name, "ExecuTorch 1.5", code="unknown_op") as caught,
    ):
        program.method()
    assert "fallback" not in str(caught.value)


def test_refusal_advises_the_fallback_where_the_cpu_has_a_kernel(unsupported):
    with webpte.load(unsupported) as program, raises(webpte.UnsupportedError, 'fallback="cpu"'):
        program.method()
    assert any('fallback="cpu"' in remedy for remedy in check_file(unsupported)["remedies"])


def test_fallback_cpu_runs_and_warns(unsupported, caplog):
    with webpte.load(unsupported, fallback="cpu") as program, caplog.at_level(logging.WARNING, "webpte"):
        forward = program.method()
        assert "1 calls inside delegates of 'forward' run on the CPU: 'test.sin_degrees.default' x1" in caplog.text
        assert forward.plan.cpu_calls == {"test.sin_degrees.default": 1}
        for rows in (11, 3):
            x = np.random.default_rng(rows).uniform(-90, 90, (rows, 7)).astype(np.float32)
            want = np.maximum(np.sin(np.deg2rad(x)) + x, 0)
            assert np.allclose(forward(x), want, atol=1e-5)


def test_load_unknown_fallback_is_refused(unsupported):
    with raises(webpte.InputError, "fallback", "None, 'cpu'", "'gpu'"):
        webpte.load(unsupported, fallback="gpu")  # type: ignore[arg-type]
