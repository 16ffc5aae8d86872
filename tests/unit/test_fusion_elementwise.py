"""Which elementwise calls become one, and what keeps them apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.errors import GraphError
from webpte.fusion import PASSES
from webpte.fusion.elementwise import MAX_PROGRAM_WEIGHT, join_elementwise
from webpte.graph import Bool, Call, Double, DType, Graph, Int, Jump, Origin, String, ValueList
from webpte.graph.graph import ProgramLine, format_program, parse_program
from webpte.graph.names import COPY, ELEMENTWISE
from webpte.lowering import registered
from webpte.lowering.formulas import WEIGHTS
from webpte.lowering.programs import compile_program
from webpte.ops.elementwise.elementwise import evaluate
from webpte.plan import make_planner
from webpte.wgsl import Caps, render

F16 = Caps(features=frozenset({"shader-f16"}))


class Builder(GraphBuilder):
    """Calls by their short names; numbers are given as they are."""

    def apply(self, name, *args, dims=(5, 4), dtype=DType.FLOAT32):
        out = self.tensor(*dims, dtype=dtype)
        kinds = {int: Int, float: Double, str: String, bool: Bool}
        ids = [a if isinstance(a, Id) else self.add(kinds[type(a)](a)) for a in args]
        self.call(name if "." in name else f"aten.{name}.default", ids, out)
        return Id(out)

    def input(self, *dims, **options):
        return Id(self.tensor(*(dims or (5, 4)), **options))


class Id(int):
    """An id, to distinguish it from a number."""


@pytest.fixture
def b():
    return Builder()


def add(b, x, y, **options):
    return b.apply("aten.add.Tensor", x, y, 1, **options)


def argument(graph, call, position) -> Any:
    return graph.values[call.args[position]]


def joined(graph):
    """Return the ops of each joined call, and the name of every other."""
    after = join_elementwise(graph)
    results: list[Any] = []
    for call in after.calls:
        if call.name == ELEMENTWISE:
            steps, _ = parse_program(argument(after, call, 0).value)
            results.append(tuple(step.name.split(".")[1] for step in steps))
        else:
            results.append(call.name)
    return results


def test_elementwise_ops_have_references():
    """Without one it is joined with nothing: programs are compared step by step."""
    ops = {name: definition for name, definition in registered().items() if definition.traits.elementwise is not None}
    assert {"aten.add.Tensor", "aten.clone.default", "aten.where.self", COPY} <= set(ops)
    assert not [name for name, definition in ops.items() if definition.compute is None]


def test_copies_are_a_step_of_one_name(b):
    x = b.input()
    copies = {name for name, definition in registered().items() if definition.traits.elementwise == COPY}
    assert {"aten.clone.default", "aten._to_copy.default", "aten.alias_copy.default"} <= copies
    last = b.apply("neg", b.apply("alias_copy", b.apply("exp", x)))
    after = join_elementwise(b.graph([x], [last]))
    assert argument(after, after.calls[0], 0).value.split("\n")[1] == f"f32 {COPY} v0"


def test_weights_are_of_functions_that_exist():
    functions = {
        name.split(".")[1] for name, definition in registered().items() if definition.traits.elementwise is not None
    }
    assert set(WEIGHTS) <= functions | {"div_floor", "div_trunc", "gelu_tanh"}


def test_join_elementwise_chain_is_one_call(b):
    x, y = b.input(), b.input()
    last = b.apply("gelu", b.apply("aten.mul.Scalar", add(b, x, y), 0.5), "tanh")
    after = join_elementwise(b.graph([x, y], [last]))
    (call,) = after.calls
    assert (call.name, call.outs) == (ELEMENTWISE, (last,))
    program, tensors, numbers = (argument(after, call, position) for position in range(3))
    assert tensors == ValueList((x, y))
    assert [after.values[n] for n in numbers.ids] == [Double(0.5)]
    assert program.value.split("\n") == [
        "f32 aten.add.Tensor x0 x1 1",
        "f32 aten.mul.Scalar v0 n0",
        "f32 aten.gelu.default v1 'tanh'",
        "= v2",
    ]


def test_join_elementwise_diamond_is_one_call(b):
    x = b.input()
    inner = b.apply("exp", x)
    last = b.apply("aten.mul.Tensor", b.apply("sigmoid", inner), b.apply("neg", inner))
    assert joined(b.graph([x], [last])) == [("exp", "sigmoid", "neg", "mul")]


def test_join_elementwise_merging_branches_are_one_call(b):
    x, y = b.input(), b.input()
    left, right = b.apply("relu", x), b.apply("abs", y)
    last = b.apply("tanh", add(b, left, right))
    assert joined(b.graph([x, y], [last])) == [("relu", "abs", "add", "tanh")]


def test_join_elementwise_single_call_is_unchanged(b):
    x = b.input()
    graph = b.graph([x], [b.apply("exp", x)])
    assert join_elementwise(graph) == graph


def test_join_elementwise_returned_value_is_second_output(b):
    x = b.input()
    first = b.apply("exp", x)
    second = b.apply("neg", first)
    after = join_elementwise(b.graph([x], [first, second]))
    (call,) = after.calls
    assert call.outs == (second, first)
    assert argument(after, call, 0).value.endswith("= v1 v0")


def test_join_elementwise_earlier_reader_ends_group(b):
    x = b.input()
    first = b.apply("exp", x)
    total = b.tensor(5)
    b.call("aten.sum.dim_IntList", (first, b.list(b.number(1)), b.add(Bool(False)), b.null()), total)
    last = b.apply("neg", b.apply("aten.mul.Tensor", first, Id(total), dims=(5, 4)))
    graph = b.graph([x], [last])
    assert joined(graph) == ["aten.exp.default", "aten.sum.dim_IntList", ("mul", "neg")]


def test_join_elementwise_third_output_starts_new_call(b):
    x = b.input()
    values = [b.apply("exp", x)]
    for _ in range(4):
        values.append(b.apply("neg", values[-1]))
    calls = joined(b.graph([x], values))
    assert [len(call) for call in calls if isinstance(call, tuple)] == [2, 2]


def test_broadcasts_are_read_not_computed_again(b):
    x, row = b.input(), b.input(4)
    doubled = b.apply("aten.mul.Scalar", row, 2.0, dims=(4,))
    last = b.apply("relu", add(b, x, doubled))
    assert joined(b.graph([x, row], [last])) == ["aten.mul.Scalar", ("add", "relu")]


def test_types_may_change_on_the_way(b):
    x = b.input()
    mask = b.apply("aten.gt.Scalar", x, 0, dtype=DType.BOOL)
    null = Id(b.null())
    whole = b.apply("aten._to_copy.default", mask, *[null] * 6, dtype=DType.INT32)
    last = b.apply("aten.add.Scalar", whole, 3, 1, dtype=DType.INT32)
    after = join_elementwise(b.graph([x], [last]))
    (call,) = after.calls
    assert "i32 webpte.copy v0" in argument(after, call, 0).value


def test_bytes_are_not_joined(b):
    x = b.input(dtype=DType.INT8)
    wide = b.apply("webpte.copy", x, dtype=DType.FLOAT32)
    last = b.apply("exp", b.apply("neg", wide))
    assert joined(b.graph([x], [last])) == ["webpte.copy", ("neg", "exp")]


def test_join_elementwise_only_copies_is_unchanged(b):
    x = b.input()
    graph = b.graph([x], [b.apply("exp", b.apply("aten.alias_copy.default", x))])
    assert join_elementwise(graph) == graph


def test_join_elementwise_in_place_write_keeps_reader_order(b):
    x = b.input()
    cache = Id(b.tensor(5, 4, mutable=True))
    doubled = add(b, cache, cache)
    b.call("aten::copy_", (cache, x, b.add(Bool(False))), cache, kernel=True)
    last = b.apply("neg", b.apply("exp", doubled))
    assert joined(b.graph([x], [last])) == ["aten.add.Tensor", "aten::copy_", ("exp", "neg")]


def test_numbers_taken_from_data_and_odd_words_stay_out(b):
    x, number = b.input(), b.symint()
    moved = b.apply("aten.add.Scalar", x, Id(number), 1)
    odd = b.apply("gelu", moved, "no such\nmode")
    last = b.apply("neg", b.apply("exp", odd))
    assert joined(b.graph([x, number], [last])) == ["aten.add.Scalar", "aten.gelu.default", ("exp", "neg")]


def test_elementwise_fusion_keeps_kernel_calls_and_jumps(b):
    x = b.input()
    out = Id(b.tensor(5, 4))
    b.call("aten::exp.out", (x,), out, kernel=True)
    last = b.apply("neg", b.apply("relu", out))
    graph = b.graph([x], [last])
    assert joined(graph) == ["aten::exp.out", ("relu", "neg")]
    jumping = Graph("f", graph.values, (*graph.steps, Jump(x, 0, Origin(9))), graph.inputs, graph.outputs)
    assert join_elementwise(jumping) is jumping


def test_join_elementwise_long_chain_is_split(b):
    x = y = b.input()
    for step in range(200):
        y = b.apply("aten.mul.Scalar", y, 1.5) if step % 2 else b.apply("relu", y)
    calls = joined(b.graph([x], [y]))
    assert len(calls) == 4 and max(map(len, calls)) == MAX_PROGRAM_WEIGHT


def test_heavy_functions_are_cut_sooner(b):
    x = y = b.input()
    for _ in range(32):
        y = b.apply("aten.pow.Tensor_Scalar", y, 1.5)
    assert [len(call) for call in joined(b.graph([x], [y]))] == [MAX_PROGRAM_WEIGHT // WEIGHTS["pow"]] * 8


@pytest.mark.parametrize("rank", [1, 4, 5, 8])
@pytest.mark.parametrize("inputs", range(1, 12))
def test_join_elementwise_joined_calls_fit_bindings(b, rank, inputs):
    """Many inputs, many numbers, many dims: bindings and parameter blocks hold what the pass puts there."""
    shape = (3,) * rank
    tensors = [b.input(*((3,) * d + (1,) * (rank - d))) for d in range(1, rank + 1)]
    tensors += [b.input(*shape) for _ in range(inputs)]
    y = tensors[-1]
    for position in range(60):
        y = b.apply("aten.add.Tensor", y, tensors[position % len(tensors)], 1.5, dims=shape)
        y = b.apply("clamp", y, -1.5, 2.5, dims=shape)
    plan = make_planner(b.graph(tensors, [y]), Caps(), (), passes=["elementwise"]).plan
    assert plan.passes["elementwise"] > 60
    assert all(render(kernel) for kernel in plan.kernels)


def test_programs_that_differ_in_numbers_share_a_pipeline(b):
    x = y = b.input()
    for number in range(1, 5):
        y = b.apply("exp", b.apply("aten.add.Scalar", b.apply("aten.mul.Scalar", y, number * 0.5), number, 1))
        total = b.tensor(5, 4)
        b.call("aten._softmax.default", (y, b.number(1), b.add(Bool(False))), total)
        y = Id(total)
    plan = make_planner(b.graph([x], [y]), Caps(), (), passes=tuple(PASSES)).plan
    assert sum(kernel.template == "elementwise/elementwise.wgsl" for kernel in plan.kernels) == 1


def test_equal_numbers_of_other_kinds_are_not_mixed_up():
    text = format_program([ProgramLine("bool", "aten.eq.Scalar", ("x0", "n0"))], ["v0"])
    whole, _ = compile_program(text, (DType.INT32,), (1,), (int,))
    real, _ = compile_program(text, (DType.INT32,), (1.0,), (float,))
    assert (whole.steps[0].number, real.steps[0].number) == ("i32", "f32")


def test_elementwise_program_text_round_trips():
    steps = (ProgramLine("f32", "aten.exp.default", ("x0",)), ProgramLine("bool", "aten.lt.Scalar", ("v0", "n0")))
    assert parse_program(format_program(steps, ("v1", "v0"))) == (steps, ("v1", "v0"))


@pytest.mark.parametrize("text", ["", "= v0", "f32 aten.exp.default x0", "f32\n= v0", "\n= v0"])
def test_elementwise_program_invalid_text_is_refused(text):
    with raises(GraphError, repr(text), code="elementwise_program"):
        parse_program(text)


def test_elementwise_reference_composes_ops():
    text = "f32 aten.mul.Tensor x0 n0\nf16 aten.add.Tensor v0 x1 n1\n= v1 v0"
    x, y = np.array([1, 2], np.float32), np.array([0.1, 0.2], np.float32)
    second, first = evaluate(text, [x, y], [3.0, 2])
    np.testing.assert_array_equal(first, x * 3)
    np.testing.assert_array_equal(second, (x * 3 + 2 * y).astype(np.float16), strict=True)


def test_elementwise_fusion_keeps_origin_of_call(b):
    x = b.input()
    last = b.apply("neg", b.apply("exp", x))
    graph = b.graph([x], [last])
    (call,) = join_elementwise(graph).calls
    assert isinstance(call, Call) and call.origin == graph.calls[-1].origin
