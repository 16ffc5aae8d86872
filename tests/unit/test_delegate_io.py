"""Match the inputs and outputs of a delegate with those of its instruction, where the two lists differ."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_bytes, vk_blob
from webpte import container as c
from webpte.container import DType, MappedFile, VkInt, VkTensor, parse_program
from webpte.graph import build_graph
from webpte.graph.names import COPY, PREPACK
from webpte.lowering import mutated_positions

F32, I32, I64 = DType.FLOAT32, DType.INT32, DType.INT64
RELU, NEG, ADD = "aten.relu.default", "aten.neg.default", "aten.add.Tensor"


def tensor(*dims, dtype=F32, **more):
    return c.TensorValue(dtype, dims, tuple(range(len(dims))), place=more.pop("place", ALONE), **more)


def build(values, calls, listed, passed, program, inputs=(0,), constants=()):
    """Return the graph of a method that is one call of one delegate."""
    taken, returned = listed
    delegate = DelegateBlob(vk_blob(values, calls, taken, returned, constants))
    outputs = [value for value in passed if value not in inputs]
    method = Method(
        values=program, inputs=inputs, outputs=outputs, instructions=[c.DelegateCall(0, passed)], delegates=[delegate]
    )
    file = parse_program(MappedFile.from_bytes("t.pte", pte_bytes([method])))
    return build_graph(file.methods[0], file.named_data.get, mutated_positions)


def written(graph):
    """Who is made from whom, by the program's ids."""
    return {call.outs[0]: (call.name, call.args[0]) for call in graph.calls}


def chain(*dims):
    """Return an input, relu of it, neg of that; then their calls."""
    return [VkTensor(F32, d) for d in dims], [(RELU, (0, 1)), (NEG, (1, 2))]


# ---------------------------------------------------------------- outputs that are passed twice


def test_delegate_io_output_passed_twice_matched_by_shape():
    """The exporter lists it once. Two of the values passed have its shape, and nothing else has."""
    values = [VkTensor(F32, (3,)), VkTensor(F32, (3,)), VkTensor(I32, (3,))]
    calls = [(RELU, (0, 1)), ("aten.argmax.default", (0, 3, 4, 2))]
    program = [tensor(3), tensor(3), tensor(3), tensor(3, dtype=I64)]
    graph = build([*values, c.VkNull(), c.VkBool(False)], calls, ([0], [1, 2]), (0, 1, 2, 3), program)
    assert written(graph)[1] == (RELU, 0) and written(graph)[2] == (COPY, 1)
    assert written(graph)[3][0] == "aten.argmax.default"


def test_outputs_of_one_shape_are_refused_by_name():
    values, calls = chain((3,), (3,), (3,))
    with raises(
        webpte.UnsupportedError, "delegate 0", "1 inputs", "2 outputs", "4 values", code="ambiguous_values"
    ) as caught:
        build(values, calls, ([0], [1, 2]), (0, 1, 2, 3), [tensor(3)] * 4)
    assert "operator_blocklist=[exir_ops.edge.aten.clone.default, " in str(caught.value)
    assert caught.value.items == ("delegate 0",)


def test_delegate_io_single_output_passed_many_times():
    values, calls = [VkTensor(F32, (3,))] * 2, [(RELU, (0, 1))]
    graph = build(values, calls, ([0], [1]), (0, 1, 2, 3), [tensor(3)] * 4)
    assert written(graph) == {1: (RELU, 0), 2: (COPY, 1), 3: (COPY, 1)}


def test_delegate_io_input_passed_through_twice():
    values, calls = [VkTensor(F32, (3,)), VkTensor(F32, (2,)), VkTensor(F32, (2,))], [(RELU, (1, 2))]
    program = [tensor(3), tensor(2), tensor(3), tensor(3), tensor(2)]
    graph = build(values, calls, ([0, 1], [0, 2]), (0, 1, 2, 3, 4), program, inputs=(0, 1))
    assert written(graph) == {2: (COPY, 0), 3: (COPY, 0), 4: (RELU, 1)}


def test_delegate_io_constant_as_output_of_delegate_without_inputs():
    values = [VkTensor(F32, (2,), constant_id=0)]
    graph = build(values, [], ([], [0]), (0,), [tensor(2)], inputs=(), constants=[np.arange(2, dtype="f4")])
    ((name, source),) = written(graph).values()
    assert name == COPY and graph.tensor(source).constant is not None


# ---------------------------------------------------------------- inputs that are not listed


def test_delegate_io_unused_input_matched_by_shape():
    values, calls = [VkTensor(F32, (3,))] * 2, [(RELU, (0, 1))]
    graph = build(values, calls, ([0], [1]), (0, 1, 2), [tensor(5), tensor(3), tensor(3)], inputs=(0, 1))
    assert written(graph) == {2: (RELU, 1)}


def test_inputs_of_one_shape_are_refused_by_name():
    values, calls = [VkTensor(F32, (3,))] * 2, [(RELU, (0, 1))]
    with raises(webpte.UnsupportedError, "3 values", "2 of them inputs", code="ambiguous_values"):
        build(values, calls, ([0], [1]), (0, 1, 2), [tensor(3)] * 3, inputs=(0, 1))


def test_delegate_io_unused_input_is_not_matched_to_output():
    """One input too many and one output too few are as many values as the delegate lists."""
    values, calls = [VkTensor(F32, (3,)), VkTensor(F32, (2,)), VkTensor(F32, (3,))], [(RELU, (0, 2))]
    with raises(webpte.GraphError, "3 values", "2 of them inputs", code="wrong_arity"):
        build(values, calls, ([0], [1, 2]), (0, 1, 2), [tensor(3), tensor(3), tensor(3)], inputs=(0, 1))


def test_delegate_io_buffer_written_later_is_an_input():
    """It has no value in the file and nothing before the call writes it, yet it is not an output of the delegate."""
    values = [VkTensor(F32, (3,)), VkTensor(F32, (3,)), VkTensor(F32, (3,)), VkInt(1)]
    blob = DelegateBlob(vk_blob(values, [(ADD, (0, 1, 3, 2))], [0, 1], [2], []))
    method = Method(
        values=[tensor(3), tensor(3), tensor(3), c.BoolValue(False)],
        inputs=[0],
        outputs=[2],
        instructions=[c.DelegateCall(0, (0, 1, 2)), c.KernelCall("aten::copy_", (1, 2, 3, 1))],
        delegates=[blob],
    )
    file = parse_program(MappedFile.from_bytes("t.pte", pte_bytes([method])))
    graph = build_graph(file.methods[0], file.named_data.get, mutated_positions)
    assert graph.calls[0].args[:2] == (0, 1) and graph.tensor(1).mutable


# ---------------------------------------------------------------- lists of one length


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (tensor(4), ["value 1 ", "f32[3]", "f32[4]"]),
        (tensor(3, dtype=I64), ["value 1 ", "f32[3]", "i64[3]"]),
        (tensor(3, 1), ["value 1 ", "[3]", "[3, 1]"]),
        (c.IntValue(0), ["value 1 ", "VkTensor", "Int"]),
    ],
)
def test_values_that_cannot_be_each_other(value, expected):
    values, calls = [VkTensor(F32, (3,))] * 2, [(RELU, (0, 1))]
    with raises(webpte.GraphError, *expected, code="value_mismatch"):
        build(values, calls, ([0], [1]), (0, 1), [tensor(3), value])


def test_bounds_of_dynamic_shapes_may_differ():
    values, calls = [VkTensor(F32, (4,))] * 2, [(RELU, (0, 1))]
    program = [tensor(3, dynamic=True), tensor(3, dynamic=True)]
    assert written(build(values, calls, ([0], [1]), (0, 1), program)) == {1: (RELU, 0)}


def test_delegate_io_lost_and_unused_outputs_are_separated():
    """As many values as are listed, but the first is the new value of a buffer, and the other is passed twice."""
    two, three = VkTensor(F32, (2,)), VkTensor(F32, (3,))
    values = [VkTensor(F32, (2,), constant_id=0), two, three, two, three, VkInt(1)]
    calls = [(PREPACK, (0, 1)), (ADD, (1, 1, 5, 3)), (RELU, (2, 4))]
    graph = build(values, calls, ([2], [3, 4]), (0, 1, 2), [tensor(3)] * 3, constants=[np.zeros(2, "f4")])
    result = written(graph)
    assert result[1] == (RELU, 0) and result[2] == (COPY, 1)
    (state,) = [v for v, spec in enumerate(graph.values) if getattr(spec, "mutable", False)]
    assert result[state] == ("aten::copy_", state)


def test_delegate_io_search_is_bounded():
    """Thousands of outputs of one shape, one of them lost: refused before anything is tried."""
    count = 3000
    values = [VkTensor(F32, (3,))] * (count + 1)
    calls = [(RELU, (0, i + 1)) for i in range(count)]
    with raises(webpte.UnsupportedError, f"{count} outputs", f"{count + 2} values", code="ambiguous_values"):
        passed = tuple(range(count + 2))
        build(values, calls, ([0], range(1, count + 1)), passed, [tensor(3)] * (count + 2))
