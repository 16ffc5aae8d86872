"""Several executions in one submit give what single runs give, whatever shares a buffer with what."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from tests.support.harness.random_steps import Trial, differences, single_runs, try_seed
from webpte.device import Gpu, WeightBuffers
from webpte.graph import DType, Graph, TensorSpec
from webpte.plan import make_planner, memory
from webpte.runtime import steps as steps_module
from webpte.runtime.kernels import CpuKernels
from webpte.runtime.method import Method
from webpte.wgsl.kernel import SYM_SLOTS

N = 8
GRAPHS = 150  # `python -m tests.support.harness.random_steps 2000` tries more


@contextmanager
def loaded(graph: Graph, gpu: Gpu) -> Iterator[Method]:
    """The graph as it is, as a method."""
    weights = WeightBuffers(gpu)
    method = Method(make_planner(graph, gpu.caps, CpuKernels()), gpu, weights, CpuKernels())
    try:
        yield method
    finally:
        method.close()
        weights.close()


@contextmanager
def packed(*together: tuple[int, ...]) -> Iterator[None]:
    """Let these values share a buffer; all others have their own."""

    def share(roots):
        results = {root.id: root for root in roots}
        groups = [[results.pop(v) for v in group] for group in together]
        groups += [[root] for root in results.values()]
        return [(max(r.nbytes for r in tenants), tenants) for tenants in groups]

    with patch.object(memory, "share_buffers", share):
        yield


def check(method: Method, steps: list, feed: dict[int, int], outputs: list[int], submits: int = 1) -> list:
    """Compare with single runs, and count the submits."""
    want = single_runs(method, Trial(method.plan.graph, (), steps, feed, outputs))
    method.reset()
    before = method.counters.snapshot()
    got = method.run_steps(steps, feed, outputs)
    assert method.counters.since(before).submits == submits
    assert not differences(got, want)
    return got


def full(number: float) -> np.ndarray:
    return np.full(N, number, np.float32)


def adder() -> Graph:
    """forward(x, y) = x + y"""
    b = GraphBuilder()
    x, y, out = b.tensor(N), b.tensor(N), b.tensor(N)
    b.call("aten.add.Tensor", (x, y, b.number(1)), out)
    return b.graph([x, y], [out])


def two_chains() -> Graph:
    """forward(x, y) = relu(-x), tanh(-y)"""
    b = GraphBuilder()
    x, y = b.tensor(N), b.tensor(N)
    a, c = b.unary(x, N, name="aten.neg.default"), b.unary(y, N, name="aten.neg.default")
    return b.graph([x, y], [b.unary(a, N), b.unary(c, N, name="aten.tanh.default")])


def test_steps_inputs_without_feedback_come_from_each_step(device):
    with loaded(adder(), device) as method:
        got = check(method, [(full(0), full(y)) for y in (1, 10, 100)], {0: 0}, [0])
        assert [row[0][0] for row in got] == [1, 11, 111]
        check(method, [(full(y), full(y)) for y in (1, 10, 100)], {}, [0])
        check(method, [(full(0), full(y)) for y in (1, 1, 7, 7, 1)], {0: 0}, [0])


def test_steps_input_with_reused_buffer_is_kept_per_step(device):
    b = GraphBuilder()
    x, y, total = b.tensor(N), b.tensor(N), b.tensor(N)
    b.call("aten.add.Tensor", (x, y, b.number(1)), total)
    last = b.unary(b.unary(total, N, name="aten.tanh.default"), N, name="aten.neg.default")
    graph = b.graph([x, y], [last])
    with packed((y, last)), loaded(graph, device) as method:
        assert not method.plan.unmodified_uploads & {y}
        check(method, [(full(0), full(0.3))] * 4, {0: 0}, [0])
    with packed(), loaded(graph, device) as method:
        assert method.plan.unmodified_uploads == {x, y}
        uploaded = method.counters.input_bytes
        method.run_steps([(full(0), full(0.3))] * 4, {0: 0}, [0])
        assert method.counters.input_bytes - uploaded == 2 * 4 * N  # what stays is sent once


def test_steps_input_written_by_method_is_kept_per_step(device):
    b = GraphBuilder()
    x, y, total = b.tensor(N), b.tensor(N), b.tensor(N)
    b.call("aten.add.Tensor", (x, y, b.number(1)), total)
    b.call("aten::copy_", (y, total, b.null()), y, kernel=True)
    graph = b.graph([x, y], [total, y])
    for feed in ({0: 0}, {1: 0}, {1: 1}, {0: 0, 1: 1}):
        with loaded(graph, device) as method:
            check(method, [(full(1), full(2))] * 4, feed, [0, 1])


def test_steps_result_may_share_memory_with_fed_input(device):
    graph = two_chains()
    x, first = graph.inputs[0], graph.outputs[0]
    with packed((x, first)), loaded(graph, device) as method:
        assert method.plan.buffer_of[x] == method.plan.buffer_of[first]
        check(method, [(full(-0.5), full(0.25))] * 4, {0: 0}, [0, 1])
        check(method, [(full(-0.5), full(0.25))] * 4, {0: 0, 1: 1}, [0, 1])


@pytest.mark.parametrize("feed", [{0: 1, 1: 0}, {1: 0, 0: 1}, {0: 1}, {1: 0}, {0: 0, 1: 1}])
@pytest.mark.parametrize("crossed", [True, False])
def test_steps_all_results_feed_back(device, feed, crossed):
    graph = two_chains()
    (x, y), (first, second) = graph.inputs, graph.outputs
    with packed((x, second if crossed else first), (y, first if crossed else second)), loaded(graph, device) as method:
        check(method, [(full(-0.5), full(0.25)), (full(3), full(4)), (full(5), full(6))], feed, [0, 1])


def test_steps_passed_through_input_returns_fed_value(device):
    b = GraphBuilder()
    x = b.tensor(N)
    negated = b.unary(x, N, name="aten.neg.default")
    alias = b.tensor(N)
    b.call("aten.clone.default", (x, b.null()), alias)
    graph = b.graph([x], [negated, x, alias])
    with loaded(graph, device) as method:
        check(method, [(full(k),) for k in (1, 2, 3)], {0: 0}, [0, 1], submits=3)  # the host answers for an input
        check(method, [(full(k),) for k in (1, 2, 3)], {0: 0}, [0, 2])
        check(method, [(full(k),) for k in (1, 2, 3)], {2: 0}, [0, 2])
        check(method, [(full(k),) for k in (1, 2, 3)], {1: 0}, [0], submits=3)


def test_steps_number_outputs_belong_to_each_step(device):
    b = GraphBuilder()
    x, n, doubled = b.tensor(N), b.symint(), b.symint()
    b.call("executorch_prim::add.Scalar", (n, n), doubled, kernel=True)
    graph = b.graph([x, n], [b.unary(x, N), doubled])
    with loaded(graph, device) as method:
        got = check(method, [(full(1), k) for k in (1, 2, 3)], {0: 0}, [0, 1])
        assert [row[1] for row in got] == [2, 4, 6]


@pytest.mark.parametrize(("dtype", "submits"), [(DType.FLOAT16, 1), (DType.FLOAT32, 4)])
def test_values_are_rounded_between_steps_as_a_way_through_the_host_would(device, dtype, submits):
    """A half may be kept in a word. A float that callers see as a half is rounded whenever it is read."""
    b = GraphBuilder()
    x, y, out = (b.add(TensorSpec(dtype, (N,), DType.FLOAT16)) for _ in range(3))
    b.call("aten.mul.Tensor", (x, y), out)
    narrow = replace(device.caps, features=device.caps.features - {"shader-f16"})
    with patch.object(device, "caps", narrow), loaded(b.graph([x, y], [out]), device) as method:
        inputs = np.full(N, 1.001, np.float16)
        check(method, [(inputs, inputs)] * 4, {0: 0}, [0], submits)


def test_steps_exceeding_byte_limit_run_one_by_one(device, monkeypatch):
    with loaded(adder(), device) as method:
        steps = [(full(k), full(1)) for k in range(4)]
        monkeypatch.setattr(steps_module, "MAX_STEP_BYTES", 7 * 4 * N)  # four results, three inputs
        check(method, steps, {}, [0])
        monkeypatch.setattr(steps_module, "MAX_STEP_BYTES", 7 * 4 * N - 1)
        check(method, steps, {}, [0], submits=4)


def test_steps_of_other_shapes_run_one_by_one(device):
    b = GraphBuilder()
    x = b.tensor(N, 3, dynamic=True)
    with loaded(b.graph([x], [b.unary(x, N, 3)]), device) as method:
        check(method, [(np.ones((rows, 3), np.float32),) for rows in (2, 2, 5)], {}, [0], submits=3)


def wrong_feeds() -> Graph:
    """forward(x f32[N], i i32[N], n) = f32[2 * N], f32[N], i32[N], n + n"""
    b = GraphBuilder()
    x, whole, n = b.tensor(N), b.tensor(N, dtype=DType.INT32), b.symint()
    both, copied, doubled = b.tensor(2 * N), b.tensor(N, dtype=DType.INT32), b.symint()
    b.call("aten.cat.default", (b.list(x, x), b.number(0)), both)
    b.call("aten.add.Tensor", (whole, whole, b.number(1)), copied)
    b.call("executorch_prim::add.Scalar", (n, n), doubled, kernel=True)
    return b.graph([x, whole, n], [both, b.unary(x, N), copied, doubled])


REFUSED: list[tuple[dict, list, str, list]] = [
    ({9: 0}, [0], "position", ["9", "4 outputs of forward"]),
    ({0: 9}, [0], "position", ["9", "3 inputs of forward"]),
    ({"a": 0}, [0], "position", ["'a'", "4 outputs of forward"]),
    ({0: [1]}, [0], "position", ["[1]", "3 inputs of forward"]),
    ({}, [[1]], "position", ["[1]", "4 outputs of forward"]),
    ({}, [4], "position", ["4", "4 outputs of forward"]),
    ({0: 0}, [0], "shape", ["output 0 of forward", "input 0", "[16]", "[8]"]),
    ({2: 0}, [0], "dtype", ["output 2 of forward", "input 0", "i32", "f32"]),
    ({1: 1}, [0], "dtype", ["output 1 of forward", "input 1", "f32", "i32"]),
    ({3: 0}, [0], "not_a_tensor", ["output 3 of forward", "input 0"]),
    ({1: 2}, [0], "not_a_tensor", ["output 1 of forward", "input 2"]),
    ({1: 0, 0: 0}, [0], "duplicate_feed", ["output 0 of forward", "input 0"]),
]


@pytest.mark.parametrize(("feed", "outputs", "code", "values"), REFUSED)
def test_feeds_and_positions_that_do_not_fit_are_refused(device, feed, outputs, code, values):
    with loaded(wrong_feeds(), device) as method:
        before = method.counters.snapshot()
        with raises(webpte.InputError, *values, code=code):
            method.run_steps([(full(1), np.ones(N, np.int32), 1)] * 2, feed, outputs)
        assert method.counters.since(before).submits == 0


def test_steps_refused_step_prevents_all(device):
    with loaded(adder(), device) as method:
        before = method.counters.snapshot()
        with raises(webpte.InputError, "[3]", f"[{N}]", code="shape"):
            method.run_steps([(full(1), full(1)), (full(1), np.ones(3, np.float32))], {0: 0}, [0])
        assert method.counters.since(before).submits == 0
        assert method.run_steps([], {0: 0}, [0]) == []


def test_steps_maximum_live_integers_are_read(device):
    b = GraphBuilder()
    x, at, outputs = b.tensor(SYM_SLOTS, 2), b.symint(), []
    for number in range(SYM_SLOTS):
        here, row = b.symint(), b.tensor(2)
        b.call("executorch_prim::add.Scalar", (at, b.number(number)), here, kernel=True)
        b.call("aten.select_copy.int", (x, b.number(0), here), row)
        outputs.append(row)
    inputs = np.arange(2 * SYM_SLOTS, dtype=np.float32).reshape(SYM_SLOTS, 2)
    with loaded(b.graph([x, at], outputs), device) as method:
        assert np.array_equal(np.array(method.run((inputs, 0))), inputs)
        got = method.run_steps([(inputs, 0), (inputs[::-1].copy(), 0)], {}, range(SYM_SLOTS))
        assert np.array_equal(np.array(got[1]), inputs[::-1])


def test_positions_of_run_are_checked(device):
    with loaded(adder(), device) as method:
        assert len(method.run((full(1), full(2)), outputs=[-1])) == 1
        wrong: Any
        for wrong in (1, -2, 0.5, None):
            with raises(webpte.InputError, repr(wrong), "1 outputs of forward", code="position"):
                method.run((full(1), full(2)), outputs=[wrong])


def test_random_graphs_feeds_and_packings(device):
    together = sum(try_seed(seed, device) for seed in range(GRAPHS))
    assert together > GRAPHS / 3
