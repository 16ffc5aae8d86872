"""CallValues scalars, live shapes, schedules: the resize engine without a device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder, live
from tests.support.harness.interruption import Interrupter
from webpte.graph import DType, SymFloat
from webpte.plan import Planner


@dataclass
class Sliced:
    """Call it with a length and a position; it gives the schedule and the live scalars."""

    planner: Planner
    x: int
    y: int
    position: int
    out: int
    rows: int

    def __call__(self, length, at):
        (segment,) = self.planner.plan.flow.segments
        dims = {self.x: (64, 4), self.y: (length, 4), self.position: (3,)}
        return self.planner.prepare(segment, live(dims, {self.position: [7, 7, at]}))


@pytest.fixture
def sliced():
    """rows = x[pos : pos + n], where n is the live length of y and pos comes from data; then relu."""
    b = GraphBuilder()
    x = b.tensor(64, 4)
    y = b.tensor(31, 4, dynamic=True)
    position = b.tensor(3, dtype=DType.INT32)
    n, pos, end = b.symint(), b.symint(), b.symint()
    zero, one = b.number(0), b.number(1)
    b.call("sym_size.int", (y, zero), n)
    b.call("et_vk.select_as_symint.default", (position, zero, b.number(-1)), pos)
    b.call("add", (pos, n), end)
    rows = b.tensor(31, 4)
    b.call("aten.slice_copy.Tensor", (x, zero, pos, end, one), rows)
    total = b.tensor(31, 4)
    b.call("aten.add.Tensor", (rows, y, one), total)
    out = b.unary(total, 31, 4)
    return Sliced(b.planner([x, y, position], [out]), x, y, position, out, rows)


def test_lowering_one_schedule_per_shape(sliced):
    prefill, _ = sliced(13, 0)
    decode, _ = sliced(1, 13)
    assert prefill.dims[sliced.out] == (13, 4) and decode.dims[sliced.out] == (1, 4)
    assert sliced(13, 0)[0] is prefill and sliced(1, 14)[0] is decode


def test_lowering_known_shape_does_not_run_again(sliced):
    sliced(1, 5)
    before = sliced.planner.runs
    schedule, slots = sliced(1, 6)
    assert sliced.planner.runs == before
    assert list(slots.values()) == [6]  # the kernel reads the position live
    assert [str(term) for term in schedule.scalars.values()] == ["1", "%2[2]", "(%2[2] + 1)"]
    assert [str(term) for term, _ in schedule.specializations] == ["ge(%2[2], 0)", "le((%2[2] + 1), 64)"]


def test_negative_indices_resolve_against_live_dims(sliced):
    _, slots = sliced(2, 9)
    assert list(slots.values()) == [9]  # element -1 of [7, 7, 9]


def test_lowering_data_dependent_dim_gets_own_schedule(sliced):
    """Near the end of the table the slice is clamped; the ops after it must not run on stale shapes."""
    whole, _ = sliced(2, 5)
    clamped, _ = sliced(2, 63)  # one row is left of the table
    assert whole.dims[sliced.rows] == (2, 4) and clamped.dims[sliced.rows] == (1, 4)
    assert sliced(2, 63)[0] is clamped and sliced(2, 6)[0] is whole
    with raises(webpte.ShapeError, "aten.add.Tensor", "[2, 4], [3, 4]", code="broadcast"):
        sliced(3, 62)
    assert sliced(2, 7)[0] is whole


def test_lowering_refused_call_leaves_planner_usable(sliced):
    good, _ = sliced(3, 1)
    with pytest.raises(webpte.ShapeError):
        sliced(40, 1)
    assert sliced(3, 2)[0] is good
    assert good.dims[sliced.out] == (3, 4)


def test_errors_name_the_op_and_its_place():
    b = GraphBuilder()
    x, y, out = b.tensor(4, 5), b.tensor(3, 7), b.tensor(4, 7)
    b.call("aten.mm.default", (x, y), out)
    with raises(webpte.ShapeError, "aten.mm.default (delegate 0, node 0)", "[4, 5]", "[3, 7]", code="operand_mismatch"):
        b.plan([x, y], [out])


def test_reading_before_writing_is_an_error():
    b = GraphBuilder()
    x, orphan, out = b.tensor(4), b.tensor(4), b.tensor(4)
    b.call("aten.relu.default", (out,), orphan)
    b.call("aten.relu.default", (orphan,), out)  # a cycle
    with raises(webpte.GraphError, "node 0)", "value 2 f32[4]", code="read_before_write"):
        b.plan([x], [out])


@pytest.mark.parametrize(
    ("accessor", "expected"),
    [
        ("symint", ["value 0 ", "TensorSpec", "SymInt"]),
        ("value_list", ["value 0 ", "TensorSpec", "ValueList"]),
        ("tensor", ["value 1 ", "Int", "Tensor"]),
    ],
)
def test_accessors_name_the_id_and_its_kind(accessor, expected):
    b = GraphBuilder()
    b.tensor(3)
    b.number(1)
    graph = b.graph([], [])
    with raises(webpte.GraphError, *expected, code="wrong_kind"):
        getattr(graph, accessor)(1 if accessor == "tensor" else 0)
    with raises(webpte.GraphError, "value 99 ", "forward", "2 values", code="unknown_value"):
        getattr(graph, accessor)(99)


@pytest.mark.parametrize(
    ("name", "a", "b", "want"), [("add", 7, -3, 4), ("sub", 7, 9, -2), ("mul", -7, 3, -21), ("floordiv", -7, 2, -4)]
)
def test_arithmetic_on_symints(name, a, b, want):
    g = GraphBuilder()
    x = g.tensor(2, dtype=DType.INT32)
    left, right, out = g.symint(), g.symint(), g.symint()
    zero = g.number(0)
    g.call("et_vk.select_as_symint.default", (x, zero, zero), left)
    g.call("et_vk.select_as_symint.default", (x, zero, g.number(1)), right)
    g.call(name, (left, right), out)
    planner = g.planner([x], [out])
    now = live({x: (2,)}, {x: [a, b]})
    planner.prepare(planner.plan.flow.segments[0], now)
    assert now.scalars[out] == want


def test_division_by_zero_is_refused():
    g = GraphBuilder()
    x, n, out = g.tensor(2, dtype=DType.INT32), g.symint(), g.symint()
    g.call("sym_size.int", (x, g.number(0)), n)
    g.call("floordiv", (n, g.number(0)), out)
    with raises(webpte.ShapeError, "floordiv of 2", code="division_by_zero"):
        g.plan([x], [out])


def test_select_as_symint_outside_its_dim():
    g = GraphBuilder()
    x, out = g.tensor(3, dtype=DType.INT32), g.symint()
    g.call("et_vk.select_as_symint.default", (x, g.number(0), g.number(3)), out)
    with raises(webpte.ShapeError, "got 3", "dim 0 ", "value 0", "size 3", code="index_out_of_range"):
        g.plan([x], [out])


@pytest.mark.parametrize(("dim", "index", "want"), [(0, 0, 1), (0, 2, 5), (1, 1, 2), (1, -1, 2), (-2, -1, 5)])
def test_select_as_symint_takes_the_first_of_the_other_dims(dim, index, want):
    g = GraphBuilder()
    x, out = g.tensor(3, 2, dtype=DType.INT32), g.symint()
    g.call("et_vk.select_as_symint.default", (x, g.number(dim), g.number(index)), out)
    planner = g.planner([x], [out])
    now = live({x: (3, 2)}, {x: np.array([[1, 2], [3, 4], [5, 6]])})
    planner.prepare(planner.plan.flow.segments[0], now)
    assert now.scalars[out] == want


def test_lowering_size_from_earlier_submit_selects_schedule():
    """The second submit reads a tensor that never changes its shape, and as much of it as the first one says."""
    g = GraphBuilder()
    x, n, y, z = g.tensor(5, dynamic=True), g.symint(), g.tensor(5), g.tensor(5)
    g.call("sym_size.int", (x, g.number(0)), n)
    g.call("test::table", (g.unary(x, 5),), y, kernel=True)
    g.call("aten.slice_copy.Tensor", (y, g.number(0), g.number(0), n, g.number(1)), z)
    planner = g.planner([x], [z], cpu=["test::table"])
    second = planner.plan.flow.segments[1]
    assert n in second.scalars and x not in second.tensors
    for size in (5, 3, 4, 3):
        here = live({y: (5,)})
        here.scalars[n] = size
        assert planner.prepare(second, here)[0].dims[z] == (size,)


def test_lowering_scalar_has_declared_dtype():
    """Read through the array's dtype: a float becomes a float, an int64 beyond 32 bits stays whole."""
    g = GraphBuilder()
    x, out = g.tensor(1, dtype=DType.FLOAT32), g.add(SymFloat())
    g.call("aten::_local_scalar_dense", (x,), out, kernel=True)
    planner = g.planner([x], [out])
    now = live({x: (1,)}, {x: np.array([2.5], np.float32)})
    planner.prepare(planner.plan.flow.segments[0], now)
    assert now.scalars[out] == 2.5


def test_schedules_are_bounded(sliced):
    from webpte.plan.schedules import MAX_SCHEDULES_PER_SEGMENT

    for length in range(1, 32):
        for at in range(4):
            sliced(length, at)
    (schedules,) = sliced.planner._schedules.values()
    assert len(schedules) <= MAX_SCHEDULES_PER_SEGMENT
    assert sum(sum(uses.values()) for uses in schedules._asked.values()) == len(schedules)


def test_interrupted_at_any_line_the_next_call_is_lowered_right(sliced):
    """Known shapes and new ones: what was half done is not believed."""
    lengths = [1, 13, 2]
    want = {}
    for length in lengths:
        schedule, slots = sliced(length, 4)
        want[length] = (dict(schedule.dims), dict(schedule.scalars), schedule.dispatches, slots)
    at = 0
    while Interrupter(at).run(sliced, 3 + at % 20, 7):
        for length in lengths:
            schedule, slots = sliced(length, 4)
            assert (dict(schedule.dims), dict(schedule.scalars), schedule.dispatches, slots) == want[length]
        schedule, slots = sliced(3 + at % 20, 7)
        assert schedule.dims[sliced.out] == (3 + at % 20, 4) and list(slots.values()) == [7]
        at += 1
    assert at > 50


@pytest.fixture
def moved():
    """x + n, where n comes from data: a function from n to the live scalars."""
    b = GraphBuilder()
    x, data, out = (b.tensor(n, dtype=DType.INT32) for n in (5, 1, 5))
    number, zero, one = b.symint(), b.number(0), b.number(1)
    b.call("et_vk.select_as_symint.default", (data, zero, zero), number)
    b.call("aten.add.Scalar", (x, number, one), out)
    planner = b.planner([x, data], [out])

    def scalars(value):
        _, slots = planner.prepare(planner.plan.flow.segments[0], live({x: (5,), data: (1,)}, {data: [value]}))
        return [*slots.values()]

    return scalars


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**62])
def test_lowering_live_integer_beyond_32_bits_is_refused(moved, value):
    assert moved(2**31 - 1) == [2**31 - 1]
    with raises(webpte.RangeError, f"got {value}", code="live_integer"):
        moved(value)
    assert moved(-7) == [-7]
