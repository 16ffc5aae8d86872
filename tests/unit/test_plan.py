"""Plans are data: buffers, segments and limits are checked with no device."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.graphs import GraphBuilder
from webpte.graph import DType, Jump, Origin, SymBool
from webpte.plan import HostCalls, PlanSegment
from webpte.plan.memory import Allocation, resolve_aliases, share_buffers
from webpte.wgsl import Caps
from webpte.wgsl.kernel import SYM_SLOTS


def chain(length, *, name="aten.relu.default"):
    b = GraphBuilder()
    x = b.tensor(8, 16)
    last = x
    for _ in range(length):
        last = b.unary(last, 8, 16, name=name)
    return b, x, last


def test_plan_long_chain_uses_two_buffers():
    b, x, y = chain(20)
    plan = b.plan([x], [y])
    assert [buffer.nbytes for buffer in plan.buffers] == [512, 512]
    assert len(plan.flow.segments) == 1


def test_reads_and_writes_of_a_dispatch_never_share_a_buffer():
    b, x, y = chain(7)
    planner = b.planner([x], [y])
    plan = planner.plan
    (schedule,) = planner.lower({})
    for dispatch in schedule.dispatches:
        numbers = [plan.buffer_of[b.tensor] for b in dispatch.bindings]
        assert len(set(numbers)) == len(numbers)


def test_views_are_aliases_and_cost_nothing():
    b = GraphBuilder()
    x = b.tensor(4, 6)
    flat = b.tensor(24)
    b.call("aten.view_copy.default", (x, b.list(b.number(24))), flat)
    y = b.unary(flat, 24)
    plan = b.plan([x], [y])
    assert plan.buffer_of[flat] == plan.buffer_of[x]
    assert len(plan.kernels) == 1


def test_plan_view_of_tensor_written_in_place_is_copied():
    b = GraphBuilder()
    x, y = b.tensor(4), b.tensor(4)
    view = b.tensor(2, 2)
    b.call("aten.view_copy.default", (x, b.list(b.number(2), b.number(2))), view)
    b.call("aten::copy_", (x, y, b.null()), x, kernel=True)
    plan = b.plan([x, y], [view, x])
    assert plan.buffer_of[view] != plan.buffer_of[x]


def test_plan_alias_keeps_base_alive():
    b = GraphBuilder()
    x = b.tensor(4, 4)
    value = b.unary(x, 4, 4)
    view = b.tensor(16)
    b.call("aten.view_copy.default", (value, b.list(b.number(16))), view)
    other = b.unary(x, 4, 4)
    for _ in range(3):
        other = b.unary(other, 4, 4)
    plan = b.plan([x], [other, view])
    tenants = [buffer.tensors for buffer in plan.buffers if value in buffer.tensors]
    assert tenants == [(value,)]


def test_plan_cpu_kernel_used_often_splits_once():
    b = GraphBuilder()
    x = b.tensor(8)
    totals = []
    for _ in range(3):
        value = b.unary(x, 8)
        summed = b.tensor(8)
        b.call("test::on_the_cpu.out", (value, b.number(0), b.null()), summed, kernel=True)
        totals.append(b.unary(summed, 8))
    plan = b.plan([x], totals, cpu=["test::on_the_cpu.out"])
    (block,) = plan.flow.blocks
    assert [type(stage) for stage in block.stages] == [PlanSegment, HostCalls, PlanSegment]
    assert [len(stage.steps) for stage in block.stages] == [3, 3, 3]
    first, second = plan.flow.segments
    assert len(first.readbacks) == 3 and len(plan.uploads[second]) == 3


def test_plan_uploads_only_bound_inputs():
    """The position is read on the host; its tensor never crosses."""
    b = GraphBuilder()
    x, position = b.tensor(9, 4), b.tensor(1, dtype=DType.INT32)
    start = b.symint()
    b.call("et_vk.select_as_symint.default", (position, b.number(0), b.number(0)), start)
    row = b.tensor(4)
    b.call("aten.select_copy.int", (x, b.number(0), start), row)
    plan = b.plan([x, position], [row])
    assert list(plan.uploads.values()) == [(x,)]


def test_plan_lists_all_unsupported_ops():
    b, x, y = chain(1)
    b.call("aten.sort.default", (y,), b.tensor(8, 16))
    b.call("aten.sort.default", (y,), b.tensor(8, 16))
    b.call("aten._fft_r2c.default", (y,), b.tensor(8, 16))
    b.call("aten::bincount.out", (y,), b.tensor(8, 16), kernel=True)
    blocked = "operator_blocklist=[exir_ops.edge.aten._fft_r2c.default, exir_ops.edge.aten.sort.default]"
    with raises(webpte.UnsupportedError, "aten.sort.default (x2)", blocked, code="several") as caught:
        b.plan([x], [y])
    assert caught.value.items == ("aten._fft_r2c.default", "aten.sort.default", "aten::bincount.out")


def test_plan_unsupported_kernel_call_is_named_first():
    b, x, y = chain(1)
    z = b.tensor(8, 16)
    b.call("quantized_decomposed::embedding_9bit.out", (y,), z, kernel=True)
    with raises(webpte.UnsupportedError, "embedding_9bit.out (x1)", code="no_cpu_kernel"):
        b.plan([x], [z])


def test_plan_dtype_without_kernel_is_named():
    b = GraphBuilder()
    x, y = b.tensor(8, dtype=DType.INT16), b.tensor(8, dtype=DType.INT16)
    b.call("aten.sigmoid.default", (x,), y)
    with raises(webpte.UnsupportedError, "aten.sigmoid.default", "value 0 i16[8], value 1 i16[8]", code="dtype"):
        b.plan([x], [y])


def test_plan_buffer_beyond_limit_is_named():
    b, x, y = chain(1)
    caps = Caps({"max-buffer-size": 256}, adapter="a small device")
    with raises(
        webpte.DeviceError, "a small device", "value 0 f32[8, 16]: 512 bytes", "allocates 256\n", code="over_limits"
    ):
        b.plan([x], [y], caps)


def test_plan_binding_too_small_for_any_part_is_named():
    """Parts begin at multiples of 256 bytes."""
    b, x, y = chain(1)
    caps = Caps({"max-storage-buffer-binding-size": 128}, adapter="a small device")
    with raises(
        webpte.DeviceError, "a small device", "value 0 f32[8, 16]: 256 bytes", "binds 128\n", code="over_limits"
    ):
        b.plan([x], [y], caps)


def test_scratch_beyond_the_limit_is_refused_too():
    """Scratch is not a value of the graph, so it has no name to give."""
    b = GraphBuilder()
    q, k, out = b.tensor(32, 32, 1, 4), b.tensor(1, 1, 8209, 4), b.tensor(32, 32, 1, 4)
    b.call("et_vk.sdpa.default", (q, k, k, b.null(), b.null()), out)
    caps = Caps({"max-buffer-size": 140000}, adapter="a small device")
    with raises(webpte.DeviceError, "a small device", "163840 bytes", "allocates 140000\n", code="over_limits"):
        b.plan([q, k], [out], caps)


def test_requested_limits_equal_needs_of_the_plan():
    b, x, y = chain(3)
    limits = b.plan([x], [y]).limits
    assert limits["max-storage-buffer-binding-size"] == 512
    assert limits["max-storage-buffers-per-shader-stage"] == 2


def test_workgroups_are_clamped_to_the_device():
    b, x, y = chain(1)
    (kernel,) = b.plan([x], [y], Caps({"max-compute-invocations-per-workgroup": 16})).kernels
    assert kernel.workgroup == 16


def test_blocks_end_at_jumps_and_shared_values_keep_their_buffers():
    b = GraphBuilder()
    x = b.tensor(8)
    condition = b.add(SymBool())
    out = b.tensor(8)
    b.steps.append(Jump(condition, 3, Origin(0)))
    b.call("webpte.copy", (x,), out)
    b.steps.append(Jump(condition, 4, Origin(2)))
    b.call("aten.relu.default", (x,), out)
    plan = b.plan([x, condition], [out])
    jumps = [(block.condition, block.target, len(block.stages)) for block in plan.flow.blocks]
    assert jumps == [(condition, 2, 0), (condition, 3, 1), (None, None, 1), (None, None, 0)]
    assert plan.buffer_of[out] != plan.buffer_of[x]


def test_plan_finds_dynamic_dims():
    """The file only says that the tensor is dynamic: 29 must stay, because the weight has 29 columns."""
    b = GraphBuilder()
    x = b.tensor(11, 29, dynamic=True)
    weight, y = b.tensor(3, 29), b.tensor(11, 3)
    b.call("aten.linear.default", (x, weight, b.null()), y)
    plan = b.plan([x, weight], [y])
    assert plan.dynamic_dims[x] == (True, False)


def test_plans_print():
    b, x, y = chain(2)
    text = str(b.plan([x], [y]))
    assert "submit: 2 calls: aten.relu.default, aten.relu.default" in text and "buffer 0: activation 512 bytes" in text


@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.integers(0, 20), st.integers(0, 8)).map(
            lambda t: Allocation(0, t[0] * 16, t[1], t[1] + t[2])
        ),
        max_size=30,
    )
)
def test_sharing_never_overlaps_and_never_exceeds_the_sum(roots):
    roots = [Allocation(i, r.nbytes, r.first, r.last) for i, r in enumerate(roots)]
    buffers = share_buffers(roots)
    assert sorted(t.id for _, tenants in buffers for t in tenants) == list(range(len(roots)))
    for nbytes, tenants in buffers:
        assert nbytes >= max(t.nbytes for t in tenants)
        for i, a in enumerate(tenants):
            assert all(a.last < b.first or b.last < a.first for b in tenants[i + 1 :])


def test_alias_chains_resolve_to_their_root():
    assert resolve_aliases({3: 2, 2: 1, 5: 4}) == {3: 1, 2: 1, 5: 4}


@pytest.mark.parametrize("count", [SYM_SLOTS, SYM_SLOTS + 1])
def test_plan_too_many_live_integers_are_refused(count):
    b = GraphBuilder()
    x, at, outputs = b.tensor(4, 2), [b.symint() for _ in range(count)], []
    for index in at:
        outputs += [b.tensor(2), b.tensor(2)]  # those that read the same integer share a slot
        b.call("aten.select_copy.int", (x, b.number(0), index), outputs[-2])
        b.call("aten.select_copy.int", (x, b.number(0), index), outputs[-1])
    if count == SYM_SLOTS:
        (schedule,) = b.planner([x, *at], outputs).lower({})
        assert len(schedule.slots) == SYM_SLOTS
        return
    with raises(webpte.DeviceError, "forward", "257 are read", "holds 256 ", "index_select", code="over_limits"):
        b.plan([x, *at], outputs)
