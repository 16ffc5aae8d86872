"""Calls that are recorded become a program: delegates, kernel calls between them, and memory that tensors share."""

from __future__ import annotations

import io

import numpy as np

from webpte import container as c
from webpte.builder.ops import OpTrace, constant, zeros
from webpte.builder.trace import TracedInt, TracedTensor, shared_slots
from webpte.container import DType


def test_slots_are_shared_by_tensors_that_do_not_live_at_the_same_time() -> None:
    assert shared_slots([(8, 0, 1), (4, 1, 2), (8, 2, 3), (4, 3, 3)]) == [0, 1, 0, 1]
    assert shared_slots([(8, 0, 9), (8, 1, 2), (16, 3, 4), (1, 5, 5)]) == [0, 1, 1, 1]


def small_program() -> tuple[c.ProgramFile, bytes]:
    """x + w, rows of it selected outside of delegates, and a state that is added and written."""
    g = OpTrace()
    count = TracedInt(7)
    x = g.input("x", DType.FLOAT32, (count, 4))
    index = g.input("index", DType.INT64, (3,))
    g.size(x, 0)
    weight = g.packed(constant("weight", np.arange(4, dtype="<f4")))
    total = g.add(x, weight)
    rows = g.index_select(total, index)
    state = TracedTensor(DType.FLOAT32, (3, 4), state=True)
    new = g.kernel("aten::add.out", state, rows, 1, out=TracedTensor(DType.FLOAT32, (3, 4)))
    doubled = g.add(g.unary("relu", new), g.packed(constant("weight", np.arange(4, dtype="<f4"))))
    flat = g.view(g.add(total, g.scalar(0.5)), (count, 2, -1))
    g.assign(state, new)
    method = g.method("forward", [doubled, flat], {"require_dynamic_shapes": b"\1"})
    program = c.ProgramFile("", 0, (method.plan,), method.named_data)
    file = io.BytesIO()
    c.write_program(file, program)
    return c.parse_program(c.MappedFile.from_bytes("x.pte", file.getvalue())), file.getvalue()


def test_kernel_calls_separate_delegates() -> None:
    program, _ = small_program()
    (method,) = program.methods
    kinds = [getattr(step, "op", "delegate") for step in method.instructions]
    assert kinds == ["delegate", "aten::index_select.out", "aten::add.out", "delegate", "aten::copy_"]
    first, second = (c.parse_vulkan(delegate.blob) for delegate in method.delegates)
    assert [call.name for call in first.calls] == ["et_vk.prepack.default", "sym_size.int", "aten.add.Tensor"]
    names = [call.name for call in second.calls]
    assert names[:2] == ["et_vk.prepack.default"] * 2 and names[2:] == [
        "aten.relu.default",
        "aten.add.Tensor",
        "aten.add.Tensor",
        "aten.view_copy.default",
    ]


def test_integers_and_tensors_cross_from_one_delegate_to_the_next() -> None:
    program, _ = small_program()
    (method,) = program.methods
    calls = [step for step in method.instructions if isinstance(step, c.DelegateCall)]
    kinds = [[type(method.values[index]).__name__ for index in call.args] for call in calls]
    assert kinds == [
        ["TensorValue", "IntValue", "TensorValue"],
        ["TensorValue", "TensorValue", "IntValue", "TensorValue", "TensorValue"],
    ]


def test_trace_state_has_own_memory_inputs_have_none() -> None:
    program, _ = small_program()
    (method,) = program.methods
    tensors = [value for value in method.values if isinstance(value, c.TensorValue)]
    assert [value.name for value in tensors if value.place is None and value.data is None] == ["x", "index"]
    state = method.values[method.instructions[-1].args[0]]  # type: ignore[union-attr]
    assert isinstance(state, c.TensorValue) and state.data is None
    assert [value.place for value in tensors].count(state.place) == 1


def test_trace_same_calls_same_bytes() -> None:
    assert small_program()[1] == small_program()[1]


def test_states_of_one_shape_share_their_initial_data_and_not_their_memory() -> None:
    g = OpTrace()
    x = g.input("x", DType.FLOAT32, (1, 4))
    caches = [zeros((1, 4)), zeros((1, 4))]
    out = g.call("some.op", x, *caches, dims=(1, 4))
    method = g.method("forward", [out], {})
    assert list(method.named_data) == ["zeros [1, 4]"]
    graph = c.parse_vulkan(method.plan.delegates[0].blob)
    states = [value for value in graph.values if isinstance(value, c.VkTensor) and value.constant_id >= 0]
    assert len({state.mem_obj_id for state in states}) == 2 and all(state.mem_obj_id >= 0 for state in states)
