"""Single calls against their references, and programs in which something is wrong."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.cli import main
from webpte.container import DType
from webpte.debug.compare import Out, TensorOperand, Tolerance, Varying, check_call, compare, write_repro
from webpte.errors import InputError
from webpte.lowering import registered

RANDOM = np.random.default_rng(3)


def floats(*dims):
    return RANDOM.standard_normal(dims).astype(np.float32)


@pytest.fixture
def broken_softmax(monkeypatch):
    """Return a softmax that stops after its first workgroup."""
    op = registered()["aten._softmax.default"]
    lower = op.lower

    def stops(cx, self, dim, half_to_float, *, out):
        lower(cx, self, dim, half_to_float, out=out)
        cx.dispatches[-1] = replace(cx.dispatches[-1], grid=(1, 1, 1))

    return lambda: monkeypatch.setattr(op, "lower", stops)


class TestOneCall:
    def test_compare_shape_below_bound(self):
        x = TensorOperand(floats(3, 29), bound=(7, 29))
        ((got, expected, actual),) = check_call(
            "aten.linear.default", [x, TensorOperand(floats(5, 29), (5, 29)), None], [Out("f32", (7, 5))]
        )
        assert got.shape == expected.shape == (3, 5) and actual.within

    def test_compare_includes_results_written_in_place(self):
        cache = TensorOperand(floats(1, 8, 2, 4), (1, 8, 2, 4))
        results = check_call(
            "update_cache.default",
            [TensorOperand(floats(1, 3, 2, 4), (1, 3, 2, 4)), cache, Varying(2)],
            [Out("f32", (1,))],
        )
        assert len(results) == 2 and all(result.within for _, _, result in results)
        np.testing.assert_array_equal(results[1][0][:, :2], cache.array[:, :2])
        assert not np.array_equal(results[1][0][:, 2:5], cache.array[:, 2:5])

    def test_lists_and_literals(self):
        pair = [TensorOperand(floats(2, 3), (2, 3)), TensorOperand(floats(4, 3), (4, 3))]
        ((got, _, result),) = check_call("aten.cat.default", [pair, 0], [Out("f32", (6, 3))])
        assert result.max_error == 0 and got.shape == (6, 3)

    def test_bare_arrays_are_refused(self):
        with raises(InputError, "ndarray", "TensorOperand(array, bound)"):
            check_call("aten.relu.default", [floats(3)], [Out("f32", (3,))])


def program(path, calls, values, inputs, outputs):
    simple_pte(path, values, calls, inputs, outputs, [])
    return webpte.load(path, passes=())


F32 = DType.FLOAT32


class TestPrograms:
    def test_compare_names_first_wrong_call_not_its_consumers(self, tmp_path, broken_softmax):
        values = [c.VkTensor(F32, (300, 7)) for _ in range(4)] + [c.VkInt(-1), c.VkBool(False)]
        calls = [
            ("aten.relu.default", [0, 1]),
            ("aten._softmax.default", [1, 4, 5, 2]),
            ("aten.relu.default", [2, 3]),
        ]
        x = floats(300, 7)
        with program(tmp_path / "a.pte", calls, values, [0], [3]) as right:
            assert compare(right, "forward", [[x]]).ok
        broken_softmax()
        with program(tmp_path / "a.pte", calls, values, [0], [3]) as broken:
            report = compare(broken, "forward", [[x]])
        assert report.first is not None and report.first.op == "aten._softmax.default"
        assert [call.op for call in report.calls if call.outside] == ["aten._softmax.default"]
        against = {end.against: end.difference.within for end in report.ends}
        assert against["references"] is False and against["no shared buffers"] is True

    def test_compare_traces_nan_origin_and_propagation(self, tmp_path):
        values = [c.VkTensor(F32, (5, 3)) for _ in range(4)]
        calls = [("aten.relu.default", [0, 1]), ("aten.rsqrt.default", [1, 2]), ("aten.neg.default", [2, 3])]
        x = np.array([[1, -1, 4]] * 5, np.float32)
        with program(tmp_path / "a.pte", calls, values, [0], [3]) as loaded:
            report = compare(loaded, "forward", [[x]], joined=False)
            joined = compare(loaded, "forward", [[x]])
        # rsqrt(0) is infinite on the device and in the reference: seen, and no fault
        assert report.ok
        assert [(call.op, call.finite_inputs) for call in report.watch] == [
            ("aten.rsqrt.default", True),
            ("aten.neg.default", False),
        ]
        assert list(report.watch[0].not_finite.values()) == [(0, 5)]
        assert [call.op for call in joined.watch] == ["webpte.elementwise[relu rsqrt neg]"]

    def test_nan_of_finite_inputs_is_suspect_though_the_reference_agrees(self, tmp_path):
        values = [c.VkTensor(F32, (5, 3)) for _ in range(2)]
        with program(tmp_path / "a.pte", [("aten.sqrt.default", [0, 1])], values, [0], [1]) as loaded:
            report = compare(loaded, "forward", [[np.full((5, 3), -1, np.float32)]])
        assert not report.ok and report.first is None
        assert report.suspect is not None and report.suspect.call.name == "aten.sqrt.default"

    def test_reference_that_raises_is_a_failure(self, tmp_path, monkeypatch, capsys):
        def refuse(x):
            raise IndexError("index 200 is out of bounds")

        monkeypatch.setattr(registered()["aten.relu.default"], "compute", refuse)
        values = [c.VkTensor(F32, (5, 3)) for _ in range(3)]
        calls = [("aten.exp.default", [0, 1]), ("aten.relu.default", [1, 2])]
        with program(tmp_path / "a.pte", calls, values, [0], [2]) as loaded:
            report = compare(loaded, "forward", [[floats(5, 3)]], joined=False)
        assert not report.ok and report.first is None
        assert [call.failed is not None and "index 200" in call.failed for call in report.calls] == [False, True]
        assert main(["compare", str(tmp_path / "a.pte"), "--no-passes"]) == 1
        assert "1 reference failed" in capsys.readouterr().out

    def test_compare_tolerance_zero_detects_rounding(self, tmp_path):
        values = [c.VkTensor(F32, (31, 7)) for _ in range(2)]
        with program(tmp_path / "a.pte", [("aten.exp.default", [0, 1])], values, [0], [1]) as loaded:
            report = compare(loaded, "forward", [[floats(31, 7)]], Tolerance(rtol=0, atol=0))
        assert report.first is not None and report.first.op == "aten.exp.default"

    def test_compare_without_difference_writes_no_repro(self, tmp_path):
        values = [c.VkTensor(F32, (5, 3)) for _ in range(2)]
        with program(tmp_path / "a.pte", [("aten.relu.default", [0, 1])], values, [0], [1]) as loaded:
            report = compare(loaded, "forward", [[floats(5, 3)]])
        assert write_repro(tmp_path / "repro", report, "") is None and not (tmp_path / "repro").exists()
