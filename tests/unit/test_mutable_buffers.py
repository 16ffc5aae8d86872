"""Mutable buffers of delegates: the constant that a new value belongs to, and its form in the graph."""

from __future__ import annotations

from dataclasses import replace

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
from webpte.plan import make_planner
from webpte.runtime.kernels import CpuKernels
from webpte.wgsl import Caps

F32 = DType.FLOAT32
RELU, ADD, UPDATE = "aten.relu.default", "aten.add.Tensor", "aten::copy_"
OPTION = '{"alias_buffer_mutations": True}'
ZEROS, ONES, WEIGHT = np.zeros(3, "f4"), np.ones(3, "f4"), np.array([1, 2, 3], "f4")


def tensor(*dims):
    return c.TensorValue(F32, dims, tuple(range(len(dims))), place=ALONE)


class Delegate:
    """A delegate of f32 tensors of one shape: one input, constants that are prepacked, and calls."""

    def __init__(self, *constants):
        self.tensor = VkTensor(F32, constants[0].shape)
        self.values = [self.tensor, VkInt(1)]
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self.constants = constants
        self.packed: list[int] = []
        for number in range(len(constants)):
            source = self.new(replace(self.tensor, constant_id=number))
            self.packed.append(self.new())
            self.calls.append((PREPACK, (source, self.packed[-1])))

    def new(self, value=None):
        self.values.append(value or self.tensor)
        return len(self.values) - 1

    def add(self, a, b, out=None):
        out = self.new() if out is None else out
        self.calls.append((ADD, (a, b, 1, out)))
        return out

    def blob(self, outputs, **more):
        return DelegateBlob(vk_blob(self.values, self.calls, [0], outputs, self.constants), **more)

    def graph(self, outputs, passed=1, **more):
        ids = tuple(range(1 + passed))
        method = Method(
            values=[tensor(*self.tensor.dims)] * len(ids),
            inputs=ids[:1],
            outputs=ids[1:],
            instructions=[c.DelegateCall(0, ids)],
            delegates=[self.blob(outputs, **more)],
        )
        file = parse_program(MappedFile.from_bytes("t.pte", pte_bytes([method])))
        return build_graph(file.methods[0], file.named_data.get, mutated_positions)


def states(graph):
    """Return the initial value of each buffer."""
    mutable = [v for v in graph.values if getattr(v, "mutable", False)]
    return [value.constant.array(value.dims).tolist() for value in mutable]


def updates(graph):
    return [call for call in graph.calls if call.name == UPDATE]


def test_mutable_buffer_only_constant_of_its_shape():
    d = Delegate(ZEROS)
    new = d.add(d.packed[0], 0)
    graph = d.graph([new, d.add(new, 0)])
    (update,) = updates(graph)
    assert update is graph.calls[-1] and update.outs == update.args[:1]
    assert states(graph) == [[0, 0, 0]]
    assert not any(call.name == PREPACK for call in graph.calls)


def test_mutable_buffer_is_state_in_plan():
    """Of the method's own memory, with its first value; its reader comes before its writer."""
    d = Delegate(WEIGHT)
    new = d.add(d.packed[0], 0)
    plan = make_planner(d.graph([new, d.add(d.packed[0], new)]), Caps(), CpuKernels()).plan
    (state,) = [b for b in plan.buffers if b.kind == "state"]
    assert state.fill is not None and state.fill.constant.array((3,)).tolist() == [1, 2, 3]


def test_mutable_buffer_overwritten_without_read():
    d = Delegate(ZEROS)
    new = d.add(0, 0)
    graph = d.graph([new, d.add(d.packed[0], new)])
    assert states(graph) == [[0, 0, 0]] and len(updates(graph)) == 1


@pytest.mark.parametrize(("numbers", "source"), [((0, 1), 0), ((1, 0), 1)])
def test_mutable_buffer_counter_separated_from_increment(numbers, source):
    d = Delegate(*(np.full(1, number, "f4") for number in numbers))
    graph = d.graph([d.add(*d.packed), d.add(0, 0)])
    assert states(graph) == [[0]] and numbers[source] == 0


def test_mutable_buffer_counter_with_other_start_is_refused():
    d = Delegate(np.full(1, 5, "f4"), np.full(1, 1, "f4"))
    with raises(webpte.UnsupportedError, "delegate 0", "1 of its 2", code="ambiguous_buffer"):
        d.graph([d.add(*d.packed), d.add(0, 0)])


@pytest.mark.parametrize(
    ("constants", "sources"),
    [
        ((WEIGHT, ZEROS), (1,)),  # a buffer beside a weight, or one that starts with numbers beside a bias of zeros
        ((ZEROS, ONES), (0, 1)),  # each from its own, or two that change places
        ((ZEROS, ONES), (None, 0)),  # a delay line: one from the input, the other from the first
    ],
)
def test_anyones_guess_is_refused_by_name(constants, sources):
    d = Delegate(*constants)
    new = [d.add(0 if source is None else d.packed[source], 0) for source in sources]
    out = d.add(*d.packed)
    with raises(
        webpte.UnsupportedError, f"{len(new)} of its 2", "f32[3]", "instruction 0", OPTION, code="ambiguous_buffer"
    ):
        d.graph([*new, out])


def test_mutable_buffer_output_of_other_shape_must_be_taken():
    d = Delegate(np.zeros(3, "f4"))
    d.values[2] = VkTensor(F32, (1, 3), constant_id=0)
    d.values[3] = VkTensor(F32, (1, 3))
    with raises(webpte.GraphError, "1 inputs", "2 outputs", "instruction 0", "2 values", code="wrong_arity"):
        d.graph([d.add(0, 0), d.add(0, 0)])


@pytest.mark.parametrize("packed", [True, False])
def test_mutable_buffer_result_is_the_constant(packed):
    """What alias_buffer_mutations writes. Calls after it read the new value, calls before it the old one."""
    d = Delegate(ZEROS)
    home = d.packed[0] if packed else d.values.index(VkTensor(F32, (3,), constant_id=0))
    before = d.add(home, 0)
    d.add(home, before, out=home)
    graph = d.graph([d.add(home, before)])
    names = [call.name for call in graph.calls]
    assert names == [ADD, ADD, UPDATE, ADD]
    first, call, update, last = graph.calls
    state = update.outs[0]
    assert first.args[0] == call.args[0] == last.args[0] == state
    assert update.args[:2] == (state, call.outs[0]) and call.outs[0] != state
    assert states(graph) == [[0, 0, 0]]


def test_mutable_buffer_result_is_the_constant_and_returned():
    d = Delegate(ZEROS)
    d.add(d.packed[0], 0, out=d.packed[0])
    graph = d.graph([d.packed[0]])
    assert [call.name for call in graph.calls] == [ADD, UPDATE, COPY]
    assert graph.calls[-1].outs == (1,)


def test_mutable_buffer_old_value_of_overwritten_is_refused():
    """Nothing is listed, and one value is passed: it can only be what the buffer was before, which is gone by then."""
    d = Delegate(ZEROS)
    d.add(d.packed[0], 0, out=d.packed[0])
    with raises(webpte.UnsupportedError, "1 inputs", "0 outputs", "instruction 0", "2 values", code="ambiguous_values"):
        d.graph([])


def test_mutable_buffer_old_value_with_lost_output_is_refused():
    """Both of the values passed may be the one output, or one of them what the buffer was before."""
    d = Delegate(ZEROS)
    new = d.add(d.packed[0], 0)
    with raises(webpte.UnsupportedError, "1 outputs", "3 values", code="ambiguous_values"):
        d.graph([new], passed=2)


# ---------------------------------------------------------------- what the file leaves open


def test_mutable_buffer_zero_constant_after_output_is_refused():
    """The file of a buffer that is returned as it was written, and of one that nothing writes."""
    d = Delegate(ZEROS)
    with raises(webpte.UnsupportedError, "delegate 0", "f32[3]", OPTION, code="uncertain_buffer"):
        d.graph([d.add(d.packed[0], 0)])


def test_weights_and_known_buffers_are_not_in_doubt():
    for weight in (WEIGHT, ONES):
        d = Delegate(weight)
        assert states(d.graph([d.add(d.packed[0], 0)])) == []
    d = Delegate(ZEROS)
    new = d.add(d.packed[0], 0)
    d.graph([new, d.add(new, 0)])


def test_mutable_buffer_zero_constant_with_alias_spec_is_accepted():
    d = Delegate(ZEROS)
    graph = d.graph([d.add(d.packed[0], 0)], compile_specs={"alias_buffer_mutations": b"\1"})
    assert states(graph) == []
