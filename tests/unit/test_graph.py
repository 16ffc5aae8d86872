"""From execution plans and delegate blobs to one graph."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_bytes, span_of, vk_blob
from webpte import container as c
from webpte.container import DType, MappedFile, VkInt, VkSymInt, VkTensor, VkValueList, parse_program
from webpte.graph import Call, Jump, SymInt, TensorSpec, build_graph
from webpte.lowering import mutated_positions

F32, I64 = DType.FLOAT32, DType.INT64


def tensor(*dims, dtype=F32):
    return c.TensorValue(dtype, dims, tuple(range(len(dims))), place=ALONE)


def build(method):
    file = parse_program(MappedFile.from_bytes("test", pte_bytes([method])))
    return build_graph(file.methods[0], file.named_data.get, mutated_positions)


def relu_delegate(*dims):
    return DelegateBlob(
        vk_blob([VkTensor(F32, dims), VkTensor(F32, dims)], [("aten.relu.default", (0, 1))], [0], [1], [])
    )


def test_delegates_and_kernel_calls_become_one_list_of_calls():
    graph = build(
        Method(
            values=[tensor(3), tensor(3), c.DoubleValue(2.0), tensor(3), tensor(3)],
            inputs=[0],
            outputs=[4],
            instructions=[
                c.DelegateCall(0, (0, 1)),
                c.KernelCall("aten::mul.Scalar_out", (1, 2, 3, 3)),
                c.DelegateCall(0, (3, 4)),
            ],
            delegates=[relu_delegate(3)],
        )
    )
    assert [(call.name, call.args, call.outs) for call in graph.calls] == [
        ("aten.relu.default", (0,), (1,)),
        ("aten::mul.Scalar_out", (1, 2), (3,)),
        ("aten.relu.default", (3,), (4,)),
    ]


def test_graph_symint_passes_between_delegates():
    size = DelegateBlob(
        vk_blob([VkTensor(F32, (5, 3)), VkInt(0), VkSymInt(0)], [("sym_size.int", (0, 1, 2))], [0], [2], [])
    )
    view = DelegateBlob(
        vk_blob(
            [VkTensor(F32, (5, 3)), VkSymInt(0), VkInt(3), VkValueList((1, 2)), VkTensor(F32, (5, 3))],
            [("aten.view_copy.default", (0, 3, 4))],
            [0, 1],
            [4],
            [],
        )
    )
    graph = build(
        Method(
            values=[tensor(5, 3), c.IntValue(0), tensor(5, 3)],
            inputs=[0],
            outputs=[2, 1],
            instructions=[c.DelegateCall(0, (0, 1)), c.DelegateCall(1, (0, 1, 2))],
            delegates=[size, view],
        )
    )
    assert isinstance(graph.values[1], SymInt)
    assert graph.flatten(graph.calls[1].args)[1] == 1


def test_graph_input_written_by_delegate_is_copied_first():
    q, cache = VkTensor(F32, (1, 2, 1, 4)), VkTensor(F32, (1, 8, 1, 4))
    values = [q, cache, cache, VkInt(0), c.VkNull(), c.VkBool(True), q]
    sdpa = vk_blob(
        values, [("sdpa_with_kv_cache.default", (0, 0, 0, 1, 2, 3, 3, 4, 3, 5, 4, 6))], [0, 1, 2], [6, 1, 2], []
    )
    graph = build(
        Method(
            values=[tensor(1, 2, 1, 4), *[tensor(1, 8, 1, 4)] * 2, tensor(1, 2, 1, 4), *[tensor(1, 8, 1, 4)] * 2],
            inputs=[0, 1, 2],
            outputs=[3, 4, 5],
            instructions=[c.DelegateCall(0, (0, 1, 2, 3, 4, 5))],
            delegates=[DelegateBlob(sdpa)],
        )
    )
    names = [call.name for call in graph.calls]
    assert names == ["webpte.copy", "webpte.copy", "sdpa_with_kv_cache.default", "webpte.copy", "webpte.copy"]
    private = graph.calls[2].args[3]
    assert graph.calls[0].args == (1,) and graph.calls[0].outs == (private,)
    assert graph.calls[3].args == (private,) and graph.calls[3].outs == (4,)


def test_jumps_point_at_steps_not_instructions():
    graph = build(
        Method(
            values=[tensor(3), c.BoolValue(True), tensor(3), tensor(3)],
            inputs=[0, 1],
            outputs=[2],
            instructions=[
                c.JumpFalseCall(1, 3),
                c.DelegateCall(0, (0, 3)),
                c.MoveCall(3, 2),
                c.FreeCall(3),
                c.JumpFalseCall(1, 5),
            ],
            delegates=[relu_delegate(3)],
        )
    )
    assert [step.target for step in graph.steps if isinstance(step, Jump)] == [3, 4]
    assert isinstance(graph.steps[2], Call) and graph.steps[2].name == "webpte.copy"


def test_kernel_calls_with_several_outputs():
    graph = build(
        Method(
            values=[tensor(3), c.IntValue(2), tensor(2), tensor(2, dtype=I64), c.TensorListValue((2, 3))],
            inputs=[0],
            outputs=[2, 3],
            instructions=[c.KernelCall("aten::topk.values", (0, 1, 2, 3, 4))],
        )
    )
    assert (graph.calls[0].args, graph.calls[0].outs) == ((0, 1), (2, 3))
    assert graph.tensor(3).dtype is DType.INT32 and graph.tensor(3).host_dtype is I64


def test_graph_tensor_in_list_written_later_is_mutable():
    graph = build(
        Method(
            values=[tensor(3), tensor(3), c.TensorListValue((1, 0)), c.IntValue(0), tensor(6)],
            inputs=[0],
            outputs=[4],
            instructions=[c.KernelCall("aten::cat.out", (2, 3, 4, 4)), c.KernelCall("aten::neg.out", (0, 1, 1))],
        )
    )
    assert [graph.tensor(value_id).mutable for value_id in (0, 1, 4)] == [False, True, False]


def test_lists_hold_ids_and_none_is_null():
    graph = build(
        Method(
            values=[tensor(3), c.OptionalTensorListValue((None, 0)), tensor(3)],
            inputs=[0],
            outputs=[2],
            instructions=[c.KernelCall("aten::index.Tensor_out", (0, 1, 2, 2))],
        )
    )
    null, value = graph.value_list(1)
    assert type(graph.values[null]).__name__ == "Null" and value == 0


@pytest.mark.parametrize("args", [(0,), (0, 1, 1)])
def test_graph_delegate_wrong_number_of_values_is_refused(args):
    with raises(webpte.GraphError, "1 inputs", "1 outputs", "instruction 0", f"{len(args)} values", code="wrong_arity"):
        build(
            Method(
                values=[tensor(3), tensor(3)],
                inputs=[0],
                outputs=[1],
                instructions=[c.DelegateCall(0, args)],
                delegates=[relu_delegate(3)],
            )
        )


def test_ranks_must_agree_at_the_border():
    with raises(webpte.GraphError, "value 0 ", "1 dims [3]", "[3, 1]", code="value_mismatch"):
        build(
            Method(
                values=[tensor(3, 1), tensor(3)],
                inputs=[0],
                outputs=[1],
                instructions=[c.DelegateCall(0, (0, 1))],
                delegates=[relu_delegate(3)],
            )
        )


def test_kinds_must_agree_at_the_border():
    with raises(webpte.GraphError, "value 0 ", "VkTensor", "Int", code="value_mismatch"):
        build(
            Method(
                values=[c.IntValue(3), tensor(3)],
                outputs=[1],
                instructions=[c.DelegateCall(0, (0, 1))],
                delegates=[relu_delegate(3)],
            )
        )


def test_constants_in_another_order_of_dims_are_put_in_order():
    """Channels last: the file has (B, H, W, C), the tensor is (B, C, H, W)."""
    array = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)
    stored = span_of(np.ascontiguousarray(array.transpose(0, 2, 3, 1)))
    value = c.TensorValue(F32, array.shape, (0, 2, 3, 1), data=stored)
    graph = build(Method(values=[value], inputs=[], outputs=[0]))
    assert np.array_equal(graph.tensor(0).constant.array(array.shape), array)


def test_graph_same_bytes_in_other_order_is_not_a_view():
    last = c.TensorValue(F32, (1, 2, 3, 4), (0, 2, 3, 1), place=(1, 0))
    flat = c.TensorValue(F32, (24,), (0,), place=(1, 0))
    graph = build(Method(values=[last, flat], inputs=[0], outputs=[1]))
    assert graph.calls == ()


def test_missing_constants_are_all_named():
    keys = [f"key{i}" for i in range(3)]
    named = [c.VkConstant(None, key, 12) for key in keys]
    values = [VkTensor(F32, (3,), constant_id=i) for i in range(3)] + [VkTensor(F32, (3,)), VkInt(1)]
    blob = vk_blob(values, [("aten.add.Tensor", (0, 1, 4, 3))], [], [3], named)
    with raises(webpte.DataError, *keys, "data=['weights.ptd']", code="missing_constant"):
        build(
            Method(
                values=[tensor(3)],
                outputs=[0],
                instructions=[c.DelegateCall(0, (0,))],
                delegates=[DelegateBlob(blob)],
            )
        )


def test_tensors_print_their_dtype_and_shape():
    assert str(TensorSpec(F32, (2, 3), F32)) == "f32[2, 3]"
