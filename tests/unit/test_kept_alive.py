"""Objects of a plan that later calls must distinguish: state, shapes, positions, changed dispatches."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder, live
from tests.support.harness.writer import simple_pte
from webpte.container import DType, VkInt, VkTensor
from webpte.graph import TensorSpec
from webpte.lowering import FLOATS, Context, LiveScalar, Tensor, op, registered, unregister
from webpte.runtime.converter import to_device
from webpte.wgsl import Caps, Live, LiveInt, Uniforms

F32 = DType.FLOAT32


@pytest.mark.parametrize("plain", [1, 2, 3])
def test_caches_of_equal_bytes_share_no_buffer(tmp_path, plain):
    """Two caches that are written and a constant that is not, all equal, in any order."""
    equal = np.ones((1, 16, 2, 5), np.float32)
    cache = (1, 16, 2, 5)
    values = [VkTensor(F32, (1, 3, 2, 5)), *(VkTensor(F32, cache, constant_id=i) for i in range(3)), VkInt(1)]
    values += [VkTensor(F32, cache), VkTensor(F32, (1,)), VkTensor(F32, (1,))]
    first, second = (i for i in (1, 2, 3) if i != plain)
    calls = [("aten.add.Tensor", (plain, plain, 4, 5))]
    calls += [("update_cache.default", (0, first, 4, 6)), ("update_cache.default", (0, second, 4, 7))]
    simple_pte(tmp_path / "p.pte", values, calls, [0], [5, 6, 7], [equal, equal, equal])
    with webpte.load(tmp_path / "p.pte") as program:
        plan = program.plan("forward", Caps())
    kept = [buffer for buffer in plan.buffers if buffer.kind in ("state", "constant")]
    assert sorted(buffer.kind for buffer in kept) == ["constant", "state", "state"]
    assert all(len(buffer.tensors) == 1 for buffer in kept)


class Filled(Uniforms):
    value: Live


@pytest.fixture
def baked():
    """Yield an op that writes a live integer into its parameters, instead of letting the kernel read it live."""

    @op("toy.baked.default", dtypes=FLOATS)
    def lower(cx: Context, x: Tensor, value: LiveScalar, *, out: Tensor) -> None:
        out.dims = x.dims
        params = Filled(value=LiveInt(int(value.value), -1))
        cx.dispatch("create/fill.wgsl", writes={"y": out}, params=params, threads=out.numel, word="f32")

    lower.home = registered()["aten.full.default"].home
    yield "toy.baked.default"
    unregister(lower)


def test_schedule_decided_integer_selects_its_own(baked):
    """The device keeps what it made of a schedule for as long as that is there."""
    b = GraphBuilder()
    x, data, out = b.tensor(5), b.tensor(1, dtype=DType.INT32), b.tensor(5)
    number, zero = b.symint(), b.number(0)
    b.call("et_vk.select_as_symint.default", (data, zero, zero), number)
    b.call(baked, (x, number), out)
    planner = b.planner([x, data], [out])

    def schedule(value):
        values = live({x: (5,), data: (1,)}, {data: [value]})
        return planner.prepare(planner.plan.flow.segments[0], values)[0]

    seven, eight = schedule(7), schedule(8)
    assert schedule(7) is seven and schedule(8) is eight
    assert seven.dispatches[0].params != eight.dispatches[0].params


@pytest.mark.parametrize(("start", "fits"), [(0, True), (16, True), (17, False), (-1, False)])
def test_rotary_table_last_row_is_reached(start, fits):
    """Seven tokens and 23 rows: 16 is the last position they may begin at."""
    b = GraphBuilder()
    q, k = b.tensor(1, 7, 4, 16), b.tensor(1, 7, 2, 16)
    table, data = b.tensor(23, 16), b.tensor(1, dtype=DType.INT32)
    at, zero = b.symint(), b.number(0)
    b.call("et_vk.select_as_symint.default", (data, zero, zero), at)
    outs = b.tensor(1, 7, 4, 16), b.tensor(1, 7, 2, 16)
    b.call("et_vk.apply_rotary_emb_hf.default", (q, k, table, table, at), *outs)
    planner = b.planner([q, k, table, data], outs)
    (segment,) = planner.plan.flow.segments
    dims = {q: (1, 7, 4, 16), k: (1, 7, 2, 16), table: (23, 16), data: (1,)}
    if fits:
        planner.prepare(segment, live(dims, {data: [start]}))
    else:
        with raises(webpte.GuardError, "7 tokens", f"position {start} ", "23 positions"):
            planner.prepare(segment, live(dims, {data: [start]}))


@pytest.mark.parametrize(
    ("edge", "fits"), [(2**31 - 1, True), (2**31, False), (-(2**31), True), (-(2**31) - 1, False), (0, True)]
)
def test_integer_64_bit_fits_up_to_last_of_32_bits(edge, fits):
    spec = TensorSpec(DType.INT32, (2,), DType.INT64)
    inputs = np.array([1, edge], np.int64)
    if fits:
        assert to_device(inputs, spec).tolist() == [1, edge]
    else:
        with raises(webpte.RangeError, edge):
            to_device(inputs, spec)
