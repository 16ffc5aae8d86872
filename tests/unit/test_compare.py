"""Tolerances of `webpte compare`, and the graph in which it sees every value; without a device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.graphs import GraphBuilder
from webpte.debug.compare import capture
from webpte.debug.compare.capture import Ideal, References
from webpte.debug.compare.reports import EDGES, CallReport, Comparison, Tolerance, difference
from webpte.graph import Call, DType, SymInt, TensorSpec
from webpte.graph.names import COPY

RANDOM = np.random.default_rng(7)


def near(relative, dtype=np.float32, dims=(29, 31)):
    want = RANDOM.standard_normal(dims)
    return (want + relative * RANDOM.choice([-1, 1], dims)).astype(dtype), want.astype(dtype)


def difference_of(relative, dtype=np.float32):
    got, want = near(relative, dtype)
    return difference(got, want, Tolerance())


class TestDifference:
    def test_rounding_passes_and_a_wrong_digit_does_not(self):
        assert difference_of(1e-6).within
        wrong = difference_of(1e-2)
        assert not wrong.within and wrong.outside == wrong.size

    def test_half_precision_has_its_own_tolerance(self):
        assert difference_of(1e-3, np.float16).within
        assert not difference_of(1e-3).within

    def test_difference_near_zero_allows_error_of_large_elements(self):
        want = np.array([100.0, -80.0, 90.0, 1e-6], np.float32)
        assert difference(want + np.float32(1e-3), want, Tolerance()).within
        assert not difference(want + np.float32(1e-3), want, Tolerance(atol=1e-4)).within

    def test_compare_masked_and_huge_elements_keep_differences_visible(self):
        want = np.ones((8, 100), np.float32)
        want[:, 50:] = np.finfo(np.float32).min
        got = want.copy()
        got[3, 7] = 1.01
        result = difference(got, want, Tolerance())
        assert (result.outside, result.at) == (1, (3, 7))

    def test_difference_names_worst_element(self):
        got, want = near(0)
        got[5, 6] += 1
        result = difference(got, want, Tolerance())
        assert (result.at, result.outside) == ((5, 6), 1)
        assert result.got == pytest.approx(float(want[5, 6]) + 1)
        assert "1 of 899 elements out of tolerance; worst at [5, 6]" in str(result)

    def test_compare_nan_equals_only_an_expected_nan(self):
        got, want = near(0)
        got[1, 2] = np.nan
        result = difference(got, want, Tolerance())
        assert (result.outside, result.nan, result.at) == (1, 1, (1, 2))
        want[1, 2] = np.nan
        assert difference(got, want, Tolerance()).within
        got[1, 2] = 0
        assert not difference(got, want, Tolerance()).within

    def test_infinities_agree_by_sign(self):
        want = np.array([np.inf, -np.inf, 1], np.float32)
        assert difference(want, want, Tolerance()).within
        result = difference(-want, want, Tolerance())
        assert result.outside == 3 and result.inf == result.wanted_inf == 2

    def test_integers_are_equal_and_codes_within_one(self):
        want = np.arange(7)
        assert not difference((want + 1).astype(np.int32), want.astype(np.int32), Tolerance()).within
        assert difference((want + 1).astype(np.int8), want.astype(np.int8), Tolerance()).within
        assert not difference((want + 2).astype(np.int8), want.astype(np.int8), Tolerance()).within

    def test_errors_add_up_by_the_loosest_dtype_on_the_way(self):
        assert Tolerance().of_many([DType.FLOAT32, DType.INT32]).rtol == pytest.approx(1e-3)
        assert Tolerance().of_many([DType.FLOAT32, DType.FLOAT16]).rtol == pytest.approx(4e-2)
        assert Tolerance(rtol=1e-5).of_many([DType.FLOAT16]).rtol == 1e-5

    def test_shapes_are_compared_first(self):
        result = difference(np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32), Tolerance())
        assert not result.within and "expected [3, 2]" in str(result)

    def test_difference_histogram_counts_each_element_once(self):
        got, want = near(1e-5)
        got[0] = want[0]
        result = difference(got, want, Tolerance())
        assert sum(result.histogram) == got.size and result.histogram[0] == 31
        assert result.histogram[EDGES.index(1e-5)] > 0 and not any(result.histogram[EDGES.index(1e-3) :])


class TestReport:
    def report(self, *errors):
        calls = []
        for index, error in enumerate(errors):
            call = CallReport(0, index, f"op{index % 2}", f"node {index}")
            call.outputs[index] = difference_of(error)
            calls.append(call)
        return Comparison("forward", "reference", None, None, calls)

    def test_compare_report_names_first_wrong_call(self):
        report = self.report(0, 1e-7, 0.1, 1e-7, 0.5)
        assert not report.ok
        assert report.data()["first_outside"] == {"step": 0, "index": 2}
        assert [(op.op, op.calls, op.outside, op.worst) for op in report.ops] == [
            ("op0", 3, 2, "node 4"),
            ("op1", 2, 0, "node 3"),
        ]

    def test_compare_nan_is_reported_even_if_the_reference_has_it(self):
        report = self.report(0)
        assert report.ok
        report.calls[0].watch(0, np.array([1, np.nan, np.inf]))
        assert not report.ok and report.calls[0].not_finite == {0: (1, 1)}


class TestExposed:
    def test_expose_value_written_once_is_its_own_holder(self):
        b = GraphBuilder()
        x = b.tensor(4)
        y = b.unary(x, 4)
        exposed = capture.Exposed(b.graph([x], [y]))
        (watched,) = exposed.watched
        assert (watched.before, watched.after, exposed.outputs) == ({x: x}, {y: y}, (y,))
        assert len(exposed.graph.steps) == 1

    def test_state_has_a_value_for_each_time(self):
        b = GraphBuilder()
        x, cache, done = b.tensor(1, 1, 2, 4), b.tensor(1, 8, 2, 4, mutable=True), b.tensor(1)
        start = b.symint()
        for _ in range(2):
            b.call("update_cache.default", (x, cache, start), done)
        exposed = capture.Exposed(b.graph([x, start], [done]))
        first, second = exposed.watched
        copies = [first.before[cache], first.after[cache], second.after[cache]]
        assert len({*copies, cache}) == 4 and second.before[cache] == first.after[cache]
        assert first.after[done] != second.after[done] == exposed.outputs[0]
        names = [step.name for step in exposed.graph.steps if isinstance(step, Call)]
        assert names == [COPY, "update_cache.default", COPY, COPY, "update_cache.default", COPY, COPY]
        assert all(not spec.stored for v in copies if isinstance(spec := exposed.graph.values[v], TensorSpec))

    def test_expose_number_written_twice_is_copied(self):
        b = GraphBuilder()
        x, n = b.tensor(4), b.symint()
        for dim in (0, 0):
            b.call("sym_size.int", (x, b.number(dim)), n)
        exposed = capture.Exposed(b.graph([x], [n]))
        holders = [watched.after[n] for watched in exposed.watched]
        assert len(set(holders)) == 2 and all(isinstance(exposed.graph.values[v], SymInt) for v in holders)

    def test_windows_stay_within_the_budget(self, monkeypatch):
        b = GraphBuilder()
        values = [b.tensor(256)]
        for _ in range(5):
            values.append(b.unary(values[-1], 256))
        exposed = capture.Exposed(b.graph(values[:1], values[-1:]))
        assert len(list(exposed.windows())) == 1
        monkeypatch.setattr(capture, "MAX_READBACK_BYTES", 3 * 1024)
        windows = list(exposed.windows())
        assert [[w.index for w in calls] for calls, _ in windows] == [[0, 1], [2, 3], [4]]
        assert [ids for _, ids in windows] == [values[0:3], values[2:5], values[4:6]]


class TestReferences:
    """A cache that a token is written into, twice."""

    @pytest.fixture
    def exposed(self):
        b = GraphBuilder()
        self.x, self.cache, self.done = b.tensor(1, 1, 1, 2), b.tensor(1, 3, 1, 2, mutable=True), b.tensor(1)
        self.start = b.symint()
        b.call("update_cache.default", (self.x, self.cache, self.start), self.done)
        return capture.Exposed(b.graph([self.x, self.start], [self.done]))

    def seen(self, exposed, token, start, cache):
        """Return what the device is said to have had."""
        (watched,) = exposed.watched
        held = np.full((1, 3, 1, 2), cache, np.float32)
        return {self.x: np.full((1, 1, 1, 2), token, np.float32), self.start: start, watched.before[self.cache]: held}

    def test_operands_stay_as_the_device_had_them(self, exposed):
        references, (watched,) = References(exposed), exposed.watched
        seen = self.seen(exposed, 5, 1, cache=0)
        operands = references.operands(watched, seen, {})
        expected = references.run(watched, operands, seen)
        assert expected[self.cache][0, :, 0, 0].tolist() == [0, 5, 0]
        assert not operands[self.cache].any()

    def test_state_is_the_references_own_from_call_to_call(self, exposed):
        ideal = Ideal(exposed, References(exposed), (self.done,))
        for token, start, cache in ((5, 0, 0), (7, 1, 999)):
            ideal.begin()
            ideal.advance(exposed.watched[0], self.seen(exposed, token, start, cache))
        assert ideal.values[self.cache][0, :, 0, 0].tolist() == [5, 7, 0]
