"""What a plan knows of positions: guards of those that the host has, ranges of others, and checks on the device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder, live
from webpte.errors import GuardError, RangeError
from webpte.graph import Bool, DType, Int, IntList, TensorSpec
from webpte.graph.names import INDEX_CHECK
from webpte.plan import Planner
from webpte.runtime.kernels import CpuKernels

I32 = DType.INT32
EMBED = "aten.embedding.default"


class Builder(GraphBuilder):
    def ints(self, *dims: int) -> int:
        return self.add(TensorSpec(I32, dims, DType.INT64))

    def computed(self, name: str, args: tuple[int, ...], *dims: int) -> int:
        out = self.ints(*dims)
        self.call(name, args, out)
        return out

    def looked_up(self, index: int, rows: int = 5) -> int:
        table = self.constant(np.zeros((rows, 3), np.float32))
        out = self.tensor(*self.graph((), ()).tensor(index).dims, 3)
        more = (self.number(-1), self.add(Bool(False)), self.add(Bool(False)))
        self.call(EMBED, (table, index, *more), out)
        return out

    def summed(self, a: int, b: int, *dims: int, sign: str = "add") -> int:
        return self.computed(f"aten.{sign}.Tensor", (a, b, self.number(1)), *dims)


def checks_of(planner: Planner) -> int:
    return sum(call.name == INDEX_CHECK for call in planner.plan.graph.calls)


def attempt(planner: Planner, *arrays: np.ndarray) -> None:
    """Check the guards of a call."""
    (segment,) = planner.plan.flow.segments
    values = dict(zip(planner.plan.graph.inputs, arrays, strict=True))
    planner.prepare(segment, live({v: a.shape for v, a in values.items()}, values))


def moved(b: Builder, x: int) -> int:
    flat = b.computed("aten.view_copy.default", (x, b.add(IntList((6,)))), 6)
    return b.computed("aten.flip.default", (flat, b.add(IntList((0,)))), 6)


def affine(b: Builder, x: int) -> int:
    """Return 3 - 2 * x."""
    two, three = b.number(2), b.constant(np.array([3], np.int32))
    return b.summed(three, b.computed("aten.mul.Tensor", (x, two), 2, 3), 2, 3, sign="sub")


def shifted(b: Builder, x: int) -> int:
    return b.computed("aten.add.Scalar", (x, b.number(2), b.number(1)), 2, 3)


EXACT = {
    "input": (lambda b, x: x, 0, 4),
    "views": (moved, 0, 4),
    "multiples": (affine, 0, 1),
    "shifted": (shifted, -2, 2),
}


@pytest.mark.parametrize("name", EXACT)
def test_positions_of_an_input_are_guarded_exactly(name):
    function, low, high = EXACT[name]
    b = Builder()
    x = b.ints(2, 3)
    planner = b.planner([x], [b.looked_up(function(b, x))])
    assert checks_of(planner) == 0
    for value in range(low, high + 1):
        attempt(planner, np.array([[low, high, low], [value, low, high]]))
    for value in (low - 1, high + 1, 1000):
        with raises(GuardError, EMBED, "0 to 4"):
            attempt(planner, np.array([[low, low, high], [low, low, value]]))


def test_sum_of_every_pair_is_guarded_at_its_extremes():
    b = Builder()
    x, y = b.ints(2, 1), b.ints(3)
    planner = b.planner([x, y], [b.looked_up(b.summed(x, y, 2, 3), rows=9)])
    assert checks_of(planner) == 0
    attempt(planner, np.array([[0], [5]]), np.array([0, 3, 1]))
    with raises(GuardError, "got 9"):
        attempt(planner, np.array([[0], [5]]), np.array([0, 4, 1]))


def test_sum_of_elements_is_checked_on_the_device():
    """[0, 8] + [8, 0] is inside of 9 rows, although the greatest elements are not."""
    b = Builder()
    x, y = b.ints(2), b.ints(2)
    planner = b.planner([x, y], [b.looked_up(b.summed(x, y, 2), rows=9)])
    assert checks_of(planner) == 1
    attempt(planner, np.array([0, 8]), np.array([8, 0]))


def test_part_of_an_input_is_checked_on_the_device():
    """The other elements may be any integers."""
    b = Builder()
    x = b.ints(4)
    args = (x, b.number(0), b.number(1), b.number(3), b.number(1))
    planner = b.planner([x], [b.looked_up(b.computed("aten.slice_copy.Tensor", args, 2))])
    assert checks_of(planner) == 1
    attempt(planner, np.array([999, 1, 2, -999]))


def test_clamped_and_chosen_positions_need_no_check():
    b = Builder()
    x, y = b.ints(4), b.tensor(4, 5)
    clamped = b.computed("aten.clamp.default", (b.summed(x, x, 4), b.number(0), b.number(4)), 4)
    greatest = b.computed("aten.argmax.default", (y, b.number(1), b.add(Bool(False))), 4)
    outs = [b.looked_up(clamped), b.looked_up(greatest), b.looked_up(greatest, rows=6)]
    planner = b.planner([x, y], outs)
    assert checks_of(planner) == 0
    assert checks_of(b.planner([x, y], [*outs, b.looked_up(greatest, rows=4)])) == 1


def test_equal_positions_in_equal_tensors_are_checked_once():
    b = Builder()
    x = b.ints(2)
    product = b.computed("aten.mul.Tensor", (x, x), 2)
    assert checks_of(b.planner([x], [b.looked_up(product) for _ in range(6)])) == 1


@pytest.mark.parametrize(("values", "fits"), [([0, 4], True), ([0, 5], False), ([-1, 2], False)])
def test_constant_positions(values, fits):
    b = Builder()
    x = b.tensor(2, 3)
    index = b.constant(np.array(values, np.int32))
    out = b.tensor(2, 3)
    b.call("aten.add.Tensor", (x, b.looked_up(index), b.number(1)), out)
    planner = b.planner([x], [out])
    assert checks_of(planner) == 0
    if fits:
        attempt(planner, np.zeros((2, 3), np.float32))
    else:
        with raises(GuardError, EMBED):
            attempt(planner, np.zeros((2, 3), np.float32))


@pytest.mark.parametrize(
    ("name", "lowest"), [("aten::embedding.out", 0), ("aten::index_select.out", 0), ("aten::gather.out", 0)]
)
def test_cpu_kernels_take_the_positions_that_pytorch_takes(name, lowest):
    b = GraphBuilder()
    indices, outs = {
        "aten::embedding.out": ((1, 2), (1, 2, 2)),
        "aten::index_select.out": ((2,), (2, 2)),
        "aten::gather.out": ((1, 2), (1, 2)),
    }[name]
    x, index, out = b.tensor(4, 2), b.tensor(*indices, dtype=I32), b.tensor(*outs)
    args = {
        "aten::embedding.out": (x, index, b.number(-1), b.add(Bool(False)), b.add(Bool(False))),
        "aten::index_select.out": (x, b.number(0), index),
        "aten::gather.out": (x, b.number(0), index, b.add(Bool(False))),
    }[name]
    b.call(name, args, out, kernel=True)
    graph = b.graph([x, index], [out])
    (call,) = graph.calls
    for place in (lowest - 1, lowest, 3, 4):
        places = np.full(graph.tensor(index).dims, place)
        tensors = {x: np.arange(8, dtype=np.float32).reshape(4, 2), index: places}
        if lowest <= place < 4:
            assert np.isin(CpuKernels().run(call, graph, tensors, {})[out], tensors[x][place]).all()
        else:
            with raises(RangeError, name, str(place), code="position"):
                CpuKernels().run(call, graph, tensors, {})


def test_positions_along_a_dynamic_dim_follow_its_size():
    b = Builder()
    x, index = b.tensor(7, 2, dynamic=True), b.ints(3)
    out = b.tensor(3, 2)
    b.call("aten.index_select.default", (x, b.add(Int(0)), index), out)
    planner = b.planner([x, index], [out])
    attempt(planner, np.zeros((7, 2), np.float32), np.array([0, 6, 1]))
    with raises(GuardError, "0 to 4", "got 6"):
        attempt(planner, np.zeros((5, 2), np.float32), np.array([0, 6, 1]))
