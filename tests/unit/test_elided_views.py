"""Views that the exporter removed: no one writes them, and they lie where their base lies."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.harness.errors import raises
from tests.support.harness.writer import Method, pte_bytes, span_of
from webpte import container as c
from webpte.container import DType, KernelCall, MappedFile, MoveCall, parse_program
from webpte.errors import GraphError
from webpte.graph import Jump, build_graph
from webpte.graph.names import VIEW
from webpte.lowering import mutated_positions
from webpte.plan import make_planner
from webpte.runtime.kernels import CpuKernels
from webpte.wgsl import Caps

F32 = DType.FLOAT32


def tensor(*dims, at=None, **more):
    return c.TensorValue(more.pop("dtype", F32), dims, tuple(range(len(dims))), place=at, **more)


def relu(source, target):
    return KernelCall("aten::relu.out", (source, target, target))


def graph_of(values, instructions, inputs, outputs):
    method = Method(values=values, inputs=inputs, outputs=outputs, instructions=instructions)
    (plan,) = parse_program(MappedFile.from_bytes("t.pte", pte_bytes([method]))).methods
    return build_graph(plan, lambda key: None, mutated_positions)


def views(graph):
    return [(call.args[0], call.outs[0]) for call in graph.calls if call.name == VIEW]


def test_elided_view_of_input():
    graph = graph_of([tensor(12, at=(1, 0)), tensor(3, 4, at=(1, 0)), tensor(3, 4, at=(1, 64))], [relu(1, 2)], [0], [2])
    assert views(graph) == [(0, 1)]
    assert graph.calls[0].name == VIEW  # before it is read


def test_elided_view_of_latest_holder():
    """Memory is used again: the base is who wrote there last, not who was there first."""
    values = [tensor(12, at=(1, 0)), tensor(12, at=(1, 64)), tensor(12, at=(1, 0)), tensor(3, 4, at=(1, 0))]
    graph = graph_of([*values, tensor(3, 4, at=(1, 128))], [relu(0, 1), relu(1, 2), relu(3, 4)], [0], [4])
    assert views(graph) == [(2, 3)]


def test_elided_view_of_view_and_as_output():
    values = [tensor(12, at=(2, 0)), tensor(3, 4, at=(2, 0)), tensor(2, 6, at=(2, 0)), tensor(2, 6, at=(1, 0))]
    graph = graph_of(values, [relu(2, 3)], [0], [1, 3])
    assert views(graph) == [(0, 2), (0, 1)]


def test_elided_view_of_buffer_with_data():
    start = tensor(12, at=(2, 0), data=span_of(np.arange(12, dtype="f")))
    values = [tensor(12, at=(1, 0)), start, tensor(3, 4, at=(2, 0)), tensor(3, 4, at=(1, 64))]
    copy = KernelCall("aten::copy_", (1, 0, 4, 1))
    graph = graph_of([*values, c.BoolValue(False)], [relu(2, 3), copy], [0], [3])
    assert views(graph) == [(1, 2)]


def test_elided_view_of_buffer_at_zero():
    values = [tensor(12, at=(1, 0)), tensor(12, at=(2, 0)), tensor(3, 4, at=(2, 0)), tensor(3, 4, at=(1, 64))]
    copy = KernelCall("aten::copy_", (1, 0, 4, 1))
    graph = graph_of([*values, c.BoolValue(False)], [relu(2, 3), copy], [0], [3])
    assert views(graph) == [(1, 2)]
    assert graph.tensor(1).mutable


@pytest.mark.parametrize(
    "other",
    [
        tensor(3, 5, at=(1, 0)),
        tensor(3, 4, at=(1, 4)),
        tensor(3, 4, at=(2, 0)),
        tensor(3, 4, at=(1, 0), dtype=DType.INT32),
    ],
)
def test_elided_view_requires_same_size_place_dtype(other):
    read = tensor(*other.sizes, at=(1, 64), dtype=other.dtype)
    graph = graph_of([tensor(12, at=(1, 0)), other, read], [relu(1, 2)], [0], [2])
    assert views(graph) == []
    with raises(GraphError, "value 1 ", code="read_before_write"):
        make_planner(graph, Caps(), CpuKernels())


def test_elided_view_excludes_written_tensors():
    values = [tensor(12, at=(1, 0)), tensor(12, at=(1, 0)), tensor(12, at=(1, 64))]
    assert views(graph_of(values, [MoveCall(0, 1), relu(1, 2)], [0], [2])) == []


def test_elided_view_created_after_base_is_written():
    """Its first reader stands in a branch that may not be taken, the second after it."""
    values = [tensor(12, at=(1, 0)), tensor(12, at=(1, 64)), tensor(3, 4, at=(1, 64)), tensor(3, 4, at=(1, 128))]
    values += [tensor(3, 4, at=(1, 192)), c.BoolValue(False)]
    graph = graph_of(values, [relu(0, 1), c.JumpFalseCall(5, 3), relu(2, 3), relu(2, 4)], [0, 5], [4])
    assert views(graph) == [(1, 2)]
    names = [type(step).__name__ if isinstance(step, Jump) else step.name for step in graph.steps]
    assert names == ["aten::relu.out", VIEW, "Jump", "aten::relu.out", "aten::relu.out"]
    make_planner(graph, Caps(), CpuKernels())
