"""XNNPACK delegates as calls of the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.studies.xnnpack.coded_nets import nibbles
from tests.support.harness.errors import raises
from tests.support.harness.writer import ALONE, DelegateBlob, Method, pte_bytes
from tests.support.harness.xnn_writer import xnn_blob, xnn_node, xnn_pte, xnn_sample, xnn_value
from webpte import container as c
from webpte.container import DType, XnnQuant, XnnType
from webpte.errors import GraphError, UnsupportedError
from webpte.graph import Graph, Int, TensorSpec, build_graph
from webpte.lowering import mutated_positions

F32 = DType.FLOAT32


def graph_of(data: bytes) -> Graph:
    program = c.parse_program(c.MappedFile.from_bytes("m.pte", data))
    return build_graph(program.methods[0], program.named_data.get, mutated_positions)


def names(graph: Graph) -> list[str]:
    return [call.name.split(".")[1] for call in graph.calls]


X = xnn_value((2, 3, 5, 7), argument=0)
TO_NHWC, TO_NCHW = (0, 2, 3, 1), (0, 3, 1, 2)


def transpose(source: int, target: int, perm: tuple[int, ...] = TO_NHWC):
    return xnn_node("StaticTranspose", num_dims=len(perm), perm=perm, input=source, output=target)


def test_xnnpack_transposes_around_pool_are_removed() -> None:
    values = [X, xnn_value((2, 5, 7, 3)), xnn_value((2, 5, 7, 3)), xnn_value((2, 3, 5, 7), argument=1, output=True)]
    pool: dict[str, Any] = {
        "kernel_h": 3,
        "kernel_w": 3,
        "stride_h": 1,
        "stride_w": 1,
        "dilation_h": 1,
        "dilation_w": 1,
    }
    pool |= dict.fromkeys(("pad_top", "pad_right", "pad_bottom", "pad_left"), 1)
    nodes = [transpose(0, 1), xnn_node("MaxPooling2d", input=1, output=2, **pool), transpose(2, 3, TO_NCHW)]
    graph = graph_of(xnn_pte(values, nodes))
    assert names(graph) == ["max_pool2d"]
    (call,) = graph.calls
    assert (call.args[0], call.outs) == (graph.inputs[0], graph.outputs)


def test_vector_of_channels_is_laid_out_where_its_operand_is() -> None:
    values = [X, xnn_value((2, 5, 7, 3)), xnn_value((3,), constant=1), xnn_value((2, 5, 7, 3))]
    values.append(xnn_value((2, 3, 5, 7), argument=1, output=True))
    nodes = [transpose(0, 1), xnn_node("Multiply", input1=1, input2=2, output=3), transpose(3, 4, TO_NCHW)]
    graph = graph_of(xnn_pte(values, nodes, [np.arange(3, dtype="f4")]))
    assert names(graph) == ["mul"]
    weight = graph.values[graph.calls[0].args[1]]
    assert isinstance(weight, TensorSpec) and weight.dims == (1, 3, 1, 1)


def test_output_in_another_order_is_one_permutation() -> None:
    values = [X, xnn_value((2, 5, 7, 3)), xnn_value((2, 5, 7, 3), argument=1, output=True)]
    graph = graph_of(xnn_pte(values, [transpose(0, 1), xnn_node("Abs", input=1, output=2)]))
    assert names(graph) == ["abs", "permute_copy"]
    assert graph.calls[-1].outs == graph.outputs


def test_input_passed_through_is_copied() -> None:
    values = [X, xnn_value((2, 3, 5, 7), argument=1, output=True)]
    graph = graph_of(xnn_pte(values, [xnn_node("Copy", input=0, output=1)]))
    assert names(graph) == ["copy"]


def test_channels_last_tensor_enters_without_a_call() -> None:
    values = [xnn_value((2, 5, 7, 3), argument=0), xnn_value((2, 5, 7, 3), argument=1, output=True)]
    blob = xnn_blob(values, [xnn_node("Abs", input=0, output=1)])
    tensors = [c.TensorValue(F32, (2, 3, 5, 7), (0, 2, 3, 1), place=ALONE) for _ in values]
    method = Method("forward", tensors, [0], [1], [c.DelegateCall(0, (0, 1))], [DelegateBlob(blob, "XnnpackBackend")])
    graph = graph_of(pte_bytes([method]))
    assert names(graph) == ["abs"]
    assert graph.tensor(graph.outputs[0]).dims == (2, 3, 5, 7)


def test_scalar_of_the_program_enters_with_one_dim() -> None:
    values = [xnn_value((4,), argument=0), xnn_value((1,), argument=1), xnn_value((4,), argument=2, output=True)]
    blob = xnn_blob(values, [xnn_node("Add", input1=0, input2=1, output=2)])
    tensors = [c.TensorValue(F32, dims, tuple(range(len(dims))), place=ALONE) for dims in ((4,), (), (4,))]
    call = c.DelegateCall(0, (0, 1, 2))
    method = Method("forward", tensors, [0, 1], [2], [call], [DelegateBlob(blob, "XnnpackBackend")])
    assert names(graph_of(pte_bytes([method]))) == ["add"]


@pytest.mark.parametrize(
    ("sizes", "dtype", "arguments"), [((2, 2), F32, (0, 1)), ((4,), DType.FLOAT16, (0, 1)), ((4,), F32, (0,))]
)
def test_border_that_does_not_fit_is_an_error(sizes, dtype, arguments) -> None:
    values = [xnn_value((4,), argument=0), xnn_value((4,), argument=1, output=True)]
    blob = xnn_blob(values, [xnn_node("Abs", input=0, output=1)])
    tensors = [c.TensorValue(dtype, sizes, tuple(range(len(sizes))), place=ALONE) for _ in values]
    call = c.DelegateCall(0, arguments)
    method = Method("forward", tensors, [0], [1], [call], [DelegateBlob(blob, "XnnpackBackend")])
    with raises(GraphError):
        graph_of(pte_bytes([method]))


def test_unsupported_nodes_are_one_error() -> None:
    types = (XnnType.PFP32, XnnType.QUINT8)  # never written by an exporter
    values = [xnn_value((4,), argument=0), *(xnn_value((4,), type=t) for t in types)]
    values.append(xnn_value((4,), argument=1, output=True))
    nodes = [xnn_node("Convert", input=i, output=i + 1) for i in range(3)]
    with raises(UnsupportedError, "XNNPACK Convert (delegate 0, node 0", "got pfp32", "got quint8", "XNNPACKQuantizer"):
        graph_of(xnn_pte(values, nodes))


BF16 = [xnn_value((2, 3), argument=0, type=XnnType.BF16), xnn_value((2, 3), type=XnnType.BF16)]
BF16 += [xnn_value((3, 2), argument=1, output=True, type=XnnType.BF16)]
BF16_NODES = [xnn_node("Exp", input=0, output=1), transpose(1, 2, (1, 0))]


def test_bf16_is_f32_on_the_device_and_rounded_after_each_node() -> None:
    graph = graph_of(xnn_pte(BF16, BF16_NODES))
    assert names(graph) == ["exp", "round_bf16", "permute_copy"]
    specs = [graph.tensor(value_id) for value_id in (*graph.inputs, *graph.outputs)]
    assert [(spec.dtype, spec.host_dtype) for spec in specs] == [(F32, DType.BFLOAT16)] * 2


def test_bf16_that_a_kernel_uses_is_converted_around_the_delegate() -> None:
    tensors = [c.TensorValue(DType.BFLOAT16, dims, (0, 1), place=ALONE) for dims in ((2, 3), (2, 3), (3, 2), (3, 2))]
    before, after = (c.KernelCall("aten::relu.out", ids) for ids in ((0, 1, 1), (2, 3, 3)))
    delegates = [DelegateBlob(xnn_blob(BF16, BF16_NODES), "XnnpackBackend")]
    graph = graph_of(
        pte_bytes([Method("forward", tensors, [0], [3], [before, c.DelegateCall(0, (1, 2)), after], delegates)])
    )
    conversion = "_to_dim_order_copy"
    inside = ["exp", "round_bf16", "permute_copy"]
    assert [call.name.replace("::", ".").split(".")[1] for call in graph.calls] == [
        "relu", conversion, *inside, conversion, "relu",
    ]  # fmt: skip
    assert [call.kernel for call in graph.calls] == [True, True, False, False, False, True, True]
    assert graph.tensor(1).dtype is graph.tensor(2).dtype is DType.BFLOAT16


def test_value_that_no_node_defines_is_an_error() -> None:
    values = [xnn_value((4,), argument=0), xnn_value((4,)), xnn_value((4,), argument=1, output=True)]
    with raises(GraphError, "read before it is defined"):
        graph_of(xnn_pte(values, [xnn_node("Add", input1=0, input2=1, output=2)]))


def test_value_defined_twice_is_an_error() -> None:
    values = [xnn_value((4,), argument=0), xnn_value((4,), argument=1, output=True)]
    with raises(GraphError, "defined twice"):
        graph_of(xnn_pte(values, [xnn_node("Abs", input=0, output=1)] * 2))


def test_quantized_layers_become_calls_of_ops_on_codes() -> None:
    values, nodes, constants = xnn_sample()
    graph = graph_of(xnn_pte(values, nodes, constants))
    called = names(graph)
    assert called.count("choose_qparams_affine") == called.count("linear_dq8ca_q4gsw") == 1
    assert called[-4:] == ["quantize_per_tensor", "int8_linear", "dequantize_per_tensor", "permute_copy"]


@pytest.mark.parametrize("read_again", [False, True])
def test_clamp_of_codes_is_a_limit_of_the_call_before(read_again: bool) -> None:
    quant = XnnQuant("tensor", (0.5,), 3)
    values = [xnn_value((4,), argument=0, type=XnnType.QINT8, quant=quant)]
    values += [xnn_value((4,), type=XnnType.QINT8, quant=quant) for _ in range(2)]
    values += [xnn_value((4,), argument=1, output=True, type=XnnType.QINT8, quant=quant)]
    nodes = [
        xnn_node("Add", input1=0, input2=0, output=1, clamp=(-2.0, 9.0)),
        xnn_node("Clamp", input=1, output=2, clamp=(-4.0, 1.0)),
        xnn_node("Multiply", input1=2, input2=1 if read_again else 0, output=3),
    ]
    graph = graph_of(xnn_pte(values, nodes))
    assert names(graph) == ["int8_add", *(["int8_table"] if read_again else []), "int8_multiply"]
    call = graph.call(0)
    limits = [graph.values[i] for i in call.args[7:9]]
    assert limits == [Int(-1), Int(21 if read_again else 5)]


def test_clamp_of_codes_that_are_an_output_is_a_call_of_its_own() -> None:
    quant = XnnQuant("tensor", (0.5,), 3)
    values = [xnn_value((4,), argument=0, type=XnnType.QINT8, quant=quant)]
    values += [xnn_value((4,), argument=i, output=True, type=XnnType.QINT8, quant=quant) for i in (1, 2)]
    nodes = [
        xnn_node("Add", input1=0, input2=0, output=1, clamp=(-2.0, 9.0)),
        xnn_node("Clamp", input=1, output=2, clamp=(-4.0, 1.0)),
    ]
    graph = graph_of(xnn_pte(values, nodes))
    assert names(graph) == ["int8_add", "int8_table"]
    assert [graph.values[i] for i in graph.call(0).args[7:9]] == [Int(-1), Int(21)]
    assert [call.outs[0] for call in graph.calls] == list(graph.outputs)


@pytest.mark.parametrize("other", [0, 1])
def test_concatenated_codes_of_different_scales_are_quantized_again(other: int) -> None:
    quants = [XnnQuant("tensor", (0.5,), 3)] * 3
    quants[other] = XnnQuant("tensor", (0.25,), 3)
    dims = [(4,), (4,), (8,)]
    coded = [
        xnn_value(dims[i], argument=i, output=i == 2, type=XnnType.QINT8, quant=quant) for i, quant in enumerate(quants)
    ]
    graph = graph_of(xnn_pte(coded, [xnn_node("Concatenate2", axis=0, input1=0, input2=1, output=2)]))
    assert names(graph) == ["dequantize_per_tensor", "dequantize_per_tensor", "cat", "quantize_per_tensor"]
    same = [replace(value, quant=quants[2]) for value in coded]
    graph = graph_of(xnn_pte(same, [xnn_node("Concatenate2", axis=0, input1=0, input2=1, output=2)]))
    assert names(graph) == ["cat"]


def test_scales_of_weights_are_along_the_dim_that_the_file_names() -> None:
    codes, scales = np.array([[1, -2, 3], [-8, 7, 0], [4, 5, -6]], "i1"), (0.5, 0.25, 2.0)
    for dim, factors in ((0, np.array(scales)[:, None]), (1, np.array(scales))):
        quant = XnnQuant("channel", scales, channel_dim=dim)
        values = [xnn_value((4, 3), argument=0), xnn_value((3, 3), type=XnnType.QCINT8, constant=1, quant=quant)]
        values += [xnn_value((4, 3), argument=1, output=True)]
        graph = graph_of(xnn_pte(values, [xnn_node("FullyConnected", input=0, filter=1, output=2)], [codes]))
        constant = graph.tensor(graph.calls[0].args[1]).constant
        assert constant is not None
        np.testing.assert_array_equal(constant.array((3, 3)), codes * factors)


def test_codes_beside_floats_are_their_numbers() -> None:
    """The exporter writes an integer bias for a layer on floats, if a quantized layer has the same bias."""
    codes, bias = np.array([[1, -2, 3], [-8, 7, 0]], "i1"), np.array([5, -6], "i4")
    scales = (0.5, 0.25)
    values = [xnn_value((4, 3), argument=0)]
    values += [xnn_value((2, 3), type=XnnType.QCINT4, constant=1, quant=XnnQuant("channel", scales))]
    values += [xnn_value((2,), type=XnnType.QCINT32, constant=2, quant=XnnQuant("channel", scales))]
    values += [xnn_value((4, 2), argument=1, output=True)]
    nodes = [xnn_node("FullyConnected", input=0, filter=1, bias=2, output=3)]
    graph = graph_of(xnn_pte(values, nodes, [nibbles(codes), bias]))
    assert names(graph) == ["linear"]
    for value_id, expected in zip(
        graph.calls[0].args[1:], (codes * np.array(scales)[:, None], bias * scales), strict=True
    ):
        constant = graph.tensor(value_id).constant
        assert constant is not None
        np.testing.assert_array_equal(constant.array(expected.shape), expected)


def test_codes_without_a_scale_are_an_error() -> None:
    values = [xnn_value((4,), argument=0), xnn_value((4,), type=XnnType.QINT8)]
    values.append(xnn_value((4,), argument=1, output=True))
    nodes = [xnn_node("Convert", input=i, output=i + 1) for i in range(2)]
    with raises(GraphError, "without a scale"):
        graph_of(xnn_pte(values, nodes))


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_scale_is_an_error(scale: float) -> None:
    coded = xnn_value((4,), type=XnnType.QINT8, quant=XnnQuant("tensor", (scale,), 3))
    values = [xnn_value((4,), argument=0), coded, xnn_value((4,), argument=1, output=True)]
    nodes = [xnn_node("Convert", input=i, output=i + 1) for i in range(2)]
    with raises(GraphError, "scale"):
        graph_of(xnn_pte(values, nodes))
