"""The parts of a profile that need no device: host spans, attribution, the trace's slices, the work of calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.harness.graphs import GraphBuilder, live
from tests.support.harness.screens import printed
from webpte.cli.profile import _device
from webpte.debug.profile.profile import attribution
from webpte.debug.profile.runs import CallObserver, HostSpan, Run, times_by_name
from webpte.graph import Bool, DType
from webpte.lowering import FLOATS, Context, OpTraits, Tensor, op, unregister
from webpte.plan import CallWork


class TestSpans:
    def test_observer_phase_lasts_until_next(self):
        watcher = CallObserver()
        for name in ("check inputs", "write", "", "write", "read", ""):
            watcher.phase(name)
        assert [span.name for span in watcher.spans] == ["check inputs", "write", "write", "read"]
        edges = [moment for span in watcher.spans for moment in (span.begin, span.end)]
        assert edges == sorted(edges) and watcher.spans[0].end == watcher.spans[1].begin

    def test_times_of_the_same_name_add_up(self):
        spans = [
            HostSpan("read", 0, 10),
            HostSpan("wait", 10, 90),
            HostSpan("read", 90, 110),
            HostSpan("write", 120, 130),
        ]
        assert times_by_name(spans) == {"read": 30, "wait": 80, "write": 10}


class TestAttribution:
    def test_attribution_covers_each_nanosecond_once(self):
        # record 100-200; wait 200-1000; the device works 300-500 and 550-900
        spans = [HostSpan("record", 100, 200), HostSpan("wait", 200, 1000), HostSpan("convert outputs", 1010, 1050)]
        run = Run(HostSpan("forward", 90, 1060), spans, [], [(300, 500), (550, 900)])
        report = attribution(run)
        assert {name: round(took * 1e9) for name, took in report["parts"].items()} == {
            "work": 140,
            "wait before the first dispatch": 100,
            "wait during dispatches": 550,
            "wait between dispatches": 50,
            "wait after the last dispatch": 100,
        }
        assert round(report["rest"] * 1e9) == 30
        assert report["attributed"] == pytest.approx(940 / 970)
        assert round(report["device_seconds"] * 1e9) == 600 and round(report["between_seconds"] * 1e9) == 50

    def test_work_beside_the_host_is_not_counted_twice(self):
        # The device has begun before the host has done with submitting.
        spans = [HostSpan("record", 0, 100), HostSpan("wait", 100, 200)]
        report = attribution(Run(HostSpan("forward", 0, 200), spans, [], [(50, 200)]))
        assert report["attributed"] == pytest.approx(1.0) and report["rest"] == pytest.approx(0)
        assert round(report["parts"]["wait during dispatches"] * 1e9) == 100

    def test_attribution_without_dispatches(self):
        report = attribution(Run(HostSpan("forward", 0, 100), [HostSpan("CPU kernels", 10, 90)], []))
        assert report["attributed"] == pytest.approx(0.8) and report["device_seconds"] == 0


def test_device_section_has_one_figure_for_dispatches_and_no_empty_parts():
    run = Run(HostSpan("forward", 0, 400), [HostSpan("record", 0, 100), HostSpan("wait", 100, 400)], [], [(100, 400)])
    report: Any = {"timed_call": attribution(run), "dispatches": [{}], "timestamps": True, "peak": None}
    text = " ".join(printed([lambda page: _device(report, page)], None))
    assert "1 dispatch, timed by timestamp queries" in text and "dispatches 0.3 µs + between them 0 µs" in text
    assert "on: work 0.1 µs, wait during dispatches 0.3 µs; rest" in text


def worked(builder, inputs, outputs, dims):
    """Return the plan of a graph lowered at these dims, and its one schedule."""
    planner = builder.planner(inputs, outputs)
    plan = planner.plan
    (segment,) = plan.flow.segments
    now = live(dims, {value: np.zeros(sizes, np.int32) for value, sizes in dims.items()})
    schedule, _ = planner.prepare(segment, now)
    return CallWork(plan, [schedule], now), schedule, plan.graph.call


class TestWork:
    def test_work_of_matmul_below_bound(self):
        b = GraphBuilder()
        x, w, y = b.tensor(7, 32, dynamic=True), b.tensor(16, 32), b.tensor(7, 16)
        b.call("aten.linear.default", (x, w, b.null()), y)
        work, schedule, call = worked(b, [x, w], [y], {x: (3, 32), w: (16, 32)})
        (lowered,) = schedule.calls
        assert work.flops(call(lowered.step)) == 2 * 3 * 16 * 32
        assert sum(work.bytes(lowered, d) for d in lowered.dispatches) == 4 * (3 * 32 + 16 * 32 + 3 * 16)
        assert work.shapes(call(lowered.step)) == "[3, 32] × [16, 32] → [3, 16]"

    def test_work_of_convolution(self):
        b = GraphBuilder()
        x, w, y = b.tensor(1, 3, 10, 10), b.tensor(5, 3, 3, 3), b.tensor(1, 5, 8, 8)
        ones, zeros = b.list(b.number(1), b.number(1)), b.list(b.number(0), b.number(0))
        false = b.add(Bool(False))
        b.call("aten.convolution.default", (x, w, b.null(), ones, zeros, ones, false, zeros, b.number(1)), y)
        work, schedule, call = worked(b, [x, w], [y], {x: (1, 3, 10, 10), w: (5, 3, 3, 3)})
        assert work.flops(call(schedule.calls[0].step)) == 2 * (5 * 8 * 8) * (3 * 3 * 3)

    def test_work_of_embedding_counts_only_taken_rows(self):
        b = GraphBuilder()
        table, ids, y = b.tensor(1000, 8), b.tensor(1, 3, dtype=DType.INT32), b.tensor(1, 3, 8)
        false = b.add(Bool(False))
        b.call("aten.embedding.default", (table, ids, b.number(-1), false, false), y)
        work, schedule, call = worked(b, [table, ids], [y], {table: (1000, 8), ids: (1, 3)})
        (lowered,) = schedule.calls
        assert work.flops(call(lowered.step)) is None
        assert sum(work.bytes(lowered, d) for d in lowered.dispatches) == 4 * (3 * 8 + 3 + 3 * 8)

    def test_work_of_attention_counts_only_filled_cache(self):
        b = GraphBuilder()
        x, cache, done, start = b.tensor(1, 2, 4, 8), b.tensor(1, 64, 4, 8, mutable=True), b.tensor(1), b.symint()
        b.call("update_cache.default", (x, cache, start), done)
        planner = b.planner([x, start], [done])
        plan = planner.plan
        (segment,) = plan.flow.segments
        now = live({x: (1, 2, 4, 8)})
        now.scalars[start] = 10
        schedule, _ = planner.prepare(segment, now)
        (lowered,) = schedule.calls
        work = CallWork(plan, [schedule], now)
        result = sum(work.bytes(lowered, d) for d in lowered.dispatches)
        assert result == 4 * (2 * 32 + 2 * 32 + 1)  # read the tokens, write as many rows of the cache, and `done`

    def test_work_of_user_op_follows_its_trait(self):
        def squared(sizes):
            return sizes.number("rounds") * sizes.dims("x")[0] ** 2 + sum(len(dims) for dims in sizes.each("others"))

        @op(
            "toy.pick.default",
            dtypes=FLOATS,
            traits=OpTraits(work=squared, memory_traffic={"table": lambda sizes, dims, written: 1 / dims[0]}),
        )
        def pick(cx: Context, x: Tensor, table: Tensor, rounds: int, others: list[Tensor], *, out: Tensor) -> None:
            out.dims = x.dims
            cx.dispatch("pick.wgsl", reads={"x": x, "table": table}, writes={"y": out}, threads=x.numel)

        try:
            b = GraphBuilder()
            x, table, y = b.tensor(7, dynamic=True), b.tensor(100, 8), b.tensor(7)
            b.call("toy.pick.default", (x, table, b.number(3), b.list(x, table)), y)
            work, schedule, call = worked(b, [x, table], [y], {x: (5,), table: (100, 8)})
            (lowered,) = schedule.calls
            assert work.flops(call(lowered.step)) == 3 * 5**2 + (1 + 2)
            assert work.bytes(lowered, lowered.dispatches[0]) == 4 * (5 + 8 + 5)
        finally:
            unregister(pick)
