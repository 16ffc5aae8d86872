"""index_put: one index is the device's; several, masks and sums are left to the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.harness.graphs import GraphBuilder
from webpte.graph import Bool, DType
from webpte.lowering import gpu_op
from webpte.runtime.kernels import CpuKernels

SUMS: dict[
    str, tuple[list[Any], bool, bool]
] = {  # indices, whether they are added up, and whether the device could do it
    "one index": ([[1, 3]], False, True),
    "one index, added up": ([[1, 1, 3]], True, False),
    "two indices": ([[1, 0], [2, 4]], False, False),
    "a mask": ([[True, False, True, False]], False, False),
}


@pytest.mark.parametrize("name", SUMS)
def test_index_put_unsupported_on_device_runs_on_cpu(name):
    indices, accumulate, on_device = SUMS[name]
    arrays = [np.array(index) for index in indices]
    b = GraphBuilder()
    x, values, out = b.tensor(4, 5), b.tensor(), b.tensor(4, 5)
    ids = [b.tensor(*a.shape, dtype=DType.BOOL if a.dtype == bool else DType.INT32) for a in arrays]
    b.call("aten::index_put.out", (x, b.list(*ids), values, b.add(Bool(accumulate))), out, kernel=True)
    graph = b.graph([x, values, *ids], [out])
    (call,) = graph.calls
    assert (gpu_op(call, graph) is not None) is on_device
    start = np.arange(20, dtype=np.float32).reshape(4, 5)
    tensors = {x: start, values: np.full((), 100, np.float32), **dict(zip(ids, arrays, strict=True))}
    want = start.copy()
    np.add.at(want, tuple(arrays), 100) if accumulate else want.__setitem__(tuple(arrays), 100)
    np.testing.assert_array_equal(CpuKernels().run(call, graph, tensors, {})[out], want)
    np.testing.assert_array_equal(start, np.arange(20).reshape(4, 5))  # an argument stays as it is
