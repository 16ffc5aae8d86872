"""All errors of a graph are reported at once, before any pass reads it; graphs beyond the budgets are refused."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.work import counted_calls, executed_lines
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_file, simple_pte, vk_blob
from webpte import container as c
from webpte.budgets import limit
from webpte.container import DType, VkInt, VkIntList, VkNull, VkString, VkTensor, VkValueList
from webpte.debug.check import check_file
from webpte.plan.memory import Allocation, resolve_aliases, share_buffers
from webpte.wgsl import Caps

F32 = DType.FLOAT32
MAX_CALLS = 2_000_000  # of functions, by a refusal


def T(*dims):  # noqa: N802
    return VkTensor(F32, dims)


def V(*dims, **more):  # noqa: N802
    return c.TensorValue(F32, dims, tuple(range(len(dims))), place=ALONE, **more)


def relu(source, target):
    return ("aten.relu.default", (source, target))


def view(source, shape, target):
    return ("aten.view_copy.default", (source, shape, target))


def cat(tensors, axis, target):
    return ("aten.cat.default", (tensors, axis, target))


def planned(path):
    with webpte.load(path) as program:
        return program.plan("forward", Caps())


TOO_MANY = f"{4 * (2**31 - 1) ** 2:,} bytes"
INSIDE = {
    "self alias": ([T(4), T(4), VkIntList((4,))], [view(1, 2, 1), relu(1, 0)], [1], [0], "aliased_output", ["value 0"]),
    "wrong arity": (
        [T(4), T(4)],
        [("aten.add.Tensor", (0, 1))],
        [0],
        [1],
        "wrong_arity",
        ["got 1", "expected 3"],
    ),
    "wrong kinds": (
        [T(4), T(4), VkString("x"), VkNull()],
        [("aten.add.Tensor", (2, 3, 2, 1))],
        [0],
        [1],
        "wrong_kind",
        ["argument self", "String", "Tensor"],
    ),
    "writes a number": ([T(4), T(4), VkInt(3)], [relu(0, 2), relu(0, 1)], [0], [1], "wrong_kind", ["value 3", "Int"]),
    "prepacks nothing": (
        [T(4), T(4), T(4)],
        [("et_vk.prepack.default", (1,)), relu(0, 2)],
        [0],
        [2],
        "wrong_arity",
        ["et_vk.prepack.default", "got 0"],
    ),
    "prepacks into nothing": (
        [T(4), T(4), VkValueList(())],
        [("et_vk.prepack.default", (0, 2)), relu(0, 1)],
        [0],
        [1],
        "wrong_arity",
        ["et_vk.prepack.default", "got 0"],
    ),
    "writes nothing": ([T(4), T(4), VkValueList(())], [relu(0, 2), relu(0, 1)], [0], [1], "wrong_arity", ["got 0"]),
    "writes twice": (
        [T(4), T(4)],
        [relu(0, 1), relu(0, 1)],
        [0],
        [1],
        "written_twice",
        ["value 1", "node 0", "node 1"],
    ),
    "never written": ([T(4), T(4)], [], [0], [1], "never_written", ["output 0", "value 1"]),
    "read early": ([T(4), T(4), T(4)], [relu(2, 1)], [0], [1], "read_before_write", ["value 3 f32[4]"]),
    "list in itself": (
        [T(4), VkValueList((1,)), VkInt(0), T(4)],
        [("aten.cat.default", (1, 2, 3))],
        [0],
        [3],
        "nested_list",
        ["value 3"],
    ),
    "nine dims": ([T(*[1] * 9), T(*[1] * 9)], [relu(0, 1)], [0], [1], "over_budget", ["9 dims", "at most 8 "]),
    "huge": ([T(2**31 - 1, 2**31 - 1), T(4)], [relu(0, 1)], [0], [1], "over_budget", ["value 0", TOO_MANY]),
}


@pytest.mark.parametrize("name", INSIDE)
def test_mistakes_inside_a_delegate(name, tmp_path):
    values, calls, inputs, outputs, code, expected = INSIDE[name]
    simple_pte(tmp_path / "p.pte", values, calls, inputs, outputs)
    with raises(webpte.GraphError, *expected, code=code):
        planned(tmp_path / "p.pte")


OUTSIDE = {
    "output is a list": (
        [V(4), c.IntListValue((2, 2)), c.IntValue(3)],
        [0],
        [1],
        [],
        "wrong_kind",
        ["output 0", "value 1"],
    ),
    "input is a list": (
        [V(4), c.IntListValue((2, 2)), c.IntValue(3)],
        [1],
        [2],
        [],
        "wrong_kind",
        ["input 0", "value 1"],
    ),
    "input twice": ([V(4)], [0, 0], [0], [], "duplicate_input", ["input 1", "value 0"]),
    "jump on null": ([V(4), c.NullValue()], [0], [0], [c.JumpFalseCall(1, 1)], "wrong_kind", ["value 1", "Null"]),
    "missing data": (
        [V(2**31 - 1, 2**31 - 1, external_name="w"), V(4)],
        [1],
        [1],
        [],
        "over_budget",
        ["value 0", TOO_MANY],
    ),
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_mistakes_outside_delegates(name, tmp_path):
    values, inputs, outputs, instructions, code, expected = OUTSIDE[name]
    pte_file(tmp_path / "p.pte", [Method("forward", values, inputs, outputs, instructions)])
    with raises(webpte.GraphError, *expected, code=code):
        planned(tmp_path / "p.pte")


def test_validate_lists_all_mistakes(tmp_path):
    values = [T(4), T(4), VkInt(3), T(4)]
    simple_pte(tmp_path / "p.pte", values, [relu(0, 2), ("aten.add.Tensor", (0, 3)), relu(0, 1)], [0], [1])
    with raises(webpte.GraphError, "forward", "2 defects", "value 3", "expected 3", code="several"):
        planned(tmp_path / "p.pte")
    results = [problem for problem in check_file(tmp_path / "p.pte")["problems"] if problem["kind"] == "graph"]
    assert [problem["where"] for problem in results] == [["delegate 0, node 0"], ["delegate 0, node 1"]]


def test_views_of_each_other_are_copied(tmp_path):
    """a = view(b); b = view(a): b is the input and is written again, so nothing may alias it."""
    values = [T(4), T(4), VkIntList((4,)), T(4)]
    simple_pte(tmp_path / "p.pte", values, [view(0, 2, 1), view(1, 2, 0), relu(0, 3)], [0], [3])
    assert planned(tmp_path / "p.pte").buffers


def test_validate_alias_cycle_raises():
    with raises(webpte.GraphError, "value 1 ", code="alias_cycle"):
        resolve_aliases({1: 2, 2: 3, 3: 1})
    assert resolve_aliases({1: 2, 2: 3, 5: 1, 4: 3}) == {1: 3, 2: 3, 5: 3, 4: 3}


def relus(count):
    return vk_blob([T(4)] * (count + 1), [relu(i, i + 1) for i in range(count)], [0], [count])


@pytest.mark.parametrize("shared", [True, False])
def test_validate_delegate_called_too_often_is_refused(shared, tmp_path):
    blob = relus(200)
    times = limit("repeated calls") // 200 + 2
    calls = [c.DelegateCall(0 if shared else i, (0, 1)) for i in range(times)]
    delegates = [DelegateBlob(blob)] * (1 if shared else times)
    pte_file(tmp_path / "p.pte", [Method("forward", [V(4), V(4)], [0], [1], calls, delegates)])
    repeated, allowed = f"{200 * (times - 1):,} ", f"{limit('repeated calls'):,} "
    with counted_calls(MAX_CALLS), raises(webpte.GraphError, repeated, allowed, code="over_budget"):
        planned(tmp_path / "p.pte")


def test_too_many_calls(tmp_path):
    moves = [c.MoveCall(0, 1)] * (limit("calls") + 1)
    pte_file(tmp_path / "p.pte", [Method("forward", [V(4), V(4)], [0], [1], moves)])
    with raises(webpte.GraphError, f"{limit('calls') + 1:,} ", f"{limit('calls'):,} ", code="over_budget"):
        planned(tmp_path / "p.pte")


def test_too_many_dims_to_try(tmp_path):
    count = 300
    values = [T(2 + i, 2 + count + i) for i in range(count)] * 2
    calls = [relu(i, count + i) for i in range(count)]
    simple_pte(tmp_path / "p.pte", values, calls, range(count), range(count, 2 * count), dynamic=True)
    with raises(webpte.GraphError, "600 dims", f"{limit('trial lowerings'):,} ", code="over_budget"):
        planned(tmp_path / "p.pte")


def test_validate_endless_jump_is_refused(tmp_path):
    method = Method("forward", [V(4), c.BoolValue(False)], [0], [0], [c.JumpFalseCall(1, 0)])
    pte_file(tmp_path / "p.pte", [method])
    with (
        webpte.load(tmp_path / "p.pte") as program,
        raises(webpte.GraphError, f"{limit('blocks run') + 1:,} ", code="over_budget"),
    ):
        program.method()(np.zeros(4, np.float32))


def plain_share(roots):
    """What `share` packs, spelled out: every root against every tenant of every buffer."""
    buffers: list[tuple[int, list[Allocation]]] = []
    for root in sorted(roots, key=lambda r: (-r.nbytes, r.first, r.id)):
        fitting = [
            tenants for _, tenants in buffers if all(root.last < o.first or o.last < root.first for o in tenants)
        ]
        if fitting:
            fitting[-1].append(root)
        else:
            buffers.append((root.nbytes, [root]))
    return buffers


@pytest.mark.parametrize("seed", range(20))
def test_sharing_packs_as_before(seed):
    random = np.random.default_rng(seed)
    roots = []
    for number in range(int(random.integers(1, 200))):
        first = int(random.integers(0, 150))
        last = first + int(random.integers(0, 1 + 40 * (seed % 4)))
        roots.append(Allocation(number, int(random.integers(1, 9)) * 16, first, last))
    assert share_buffers(roots) == plain_share(roots)


def test_sharing_stays_fast():
    """Values that are all alive at the end: four times as many take about five times the lines, and not sixteen."""

    def lines(count):
        roots = [Allocation(i, 16, i, 2 * count) for i in range(count)]
        assert len(share_buffers(roots)) == count
        return executed_lines(lambda: share_buffers(roots))

    assert lines(2_000) < 8 * lines(500)
