"""`webpte profile` on real exports, and its trace asked by SQL in Perfetto's own trace processor."""

from __future__ import annotations

import json
import math
from functools import cache

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.errors import raises
from tests.support.harness.trace_processor import opened
from tests.support.models.smollm import smollm2
from webpte.cli import main
from webpte.debug.inputs import make_inputs
from webpte.debug.profile import profile, profile_file
from webpte.device import NO_OBSERVER, timing
from webpte.errors import InputError
from webpte.text import size

pytestmark = pytest.mark.timeout(3600)  # with a cold cache a test exports what it looks at

DECODE = ("0=1x1:5", "1=7")
INPUTS = {"llama": DECODE, "minilm": ("0=1x9:0..99", "1=1x9:1"), "mtcnn_pnet": ("1x3x13x38:random",)}

TRACKS = """
    SELECT DISTINCT p.name AS process, t.name AS thread FROM slice s
    JOIN thread_track k ON s.track_id = k.id JOIN thread t USING (utid) JOIN process p USING (upid)
"""
ESCAPING = """
    SELECT COUNT(*) AS count FROM slice s JOIN slice p ON s.parent_id = p.id
    WHERE s.ts < p.ts OR s.ts + s.dur > p.ts + p.dur
"""
# Of the call's time, what has a name on the host; of the device's, what its slices name.
HOST_SHARE = """
    SELECT SUM(s.dur) * 1.0 / (SELECT dur FROM slice WHERE name = 'forward') AS share
    FROM slice s WHERE s.category = 'host' AND s.depth = 1
"""
DEVICE_SHARE = """
    SELECT SUM(dur) * 1.0 / (MAX(ts + dur) - MIN(ts)) AS share FROM slice WHERE category IN ('dispatch', 'overhead')
"""


def rows(processor, sql):
    return [dict(vars(row)) for row in processor.query(sql)]


def one(processor, sql):
    (row,) = rows(processor, sql)
    (value,) = row.values()
    return value


def check_slices(processor):
    """Two tracks. Slices of the device do not overlap; those of the host are all inside the call, and nest."""
    assert not one(processor, "SELECT SUM(value) AS count FROM stats WHERE severity = 'error'")
    tracks = {(row["process"].split(":")[0], row["thread"]) for row in rows(processor, TRACKS)}
    assert tracks == {("host", "calls"), ("device", "dispatches")}
    assert one(processor, "SELECT MAX(depth) AS depth FROM slice WHERE category != 'host'") == 0
    assert one(processor, "SELECT COUNT(*) AS count FROM slice WHERE category = 'host' AND depth = 0") == 1
    assert one(processor, ESCAPING) == 0
    nested = rows(processor, "SELECT s.name, p.name AS parent FROM slice s JOIN slice p ON s.parent_id = p.id")
    parents = {row["name"]: row["parent"] for row in nested}
    assert dict.fromkeys(("record", "submit", "wait", "read"), "forward").items() <= parents.items()
    assert parents.get("device", "wait") == "wait"  # it may have been done before anyone waited


def check_sums(processor, report):
    dispatched = "FROM slice WHERE category = 'dispatch'"
    assert one(processor, f"SELECT COUNT(*) AS count {dispatched}") == len(report["dispatches"])
    took = one(processor, f"SELECT SUM(dur) AS took {dispatched}")
    assert took / 1e9 == pytest.approx(report["timed_call"]["busy_seconds"], rel=1e-3)
    by_op = rows(processor, f"SELECT name, SUM(dur) AS took {dispatched} GROUP BY name")
    assert {row["name"]: row["took"] / 1e9 for row in by_op} == {
        op["name"]: pytest.approx(op["seconds"], rel=1e-3, abs=1e-8) for op in report["ops"]
    }


def asked(trace, report, folder):
    """Check a trace in Perfetto; the shares of the call's and of the device's time that have a name."""
    with opened(trace, folder) as processor:
        check_slices(processor)
        check_sums(processor, report)
        return one(processor, HOST_SHARE), one(processor, DEVICE_SHARE)


def test_profile_trace_in_perfetto_covers_decode_step(tmp_path):
    path = tmp_path / "trace.json"
    # That many that the fastest is one that nothing has interrupted.
    report = profile_file(export("llama").path, inputs=DECODE, repeat=30, roofline=False, trace=path)
    host, device = asked(path, report, tmp_path)
    assert host > 0.8 and device > 0.999  # a step of half a millisecond: Python between the spans is a part of it
    assert report["timed_call"]["attributed"] > 0.8


@cache
def profiled(name):
    return profile_file(export(name).path, inputs=INPUTS[name], repeat=2, roofline=False)


@pytest.mark.parametrize("name", INPUTS)
class TestReport:
    @pytest.fixture
    def report(self, name):
        return profiled(name)

    def test_profile_lists_each_dispatch(self, name, report):
        with webpte.load(export(name).path) as program:
            method = program.method()
            before = method.counters.snapshot()
            method.run([inputs.value for inputs in make_inputs(method.inputs, INPUTS[name])])
            assert len(report["dispatches"]) == method.counters.since(before).dispatches

    def test_sums_agree(self, name, report):
        took = sum(d["seconds"] for d in report["dispatches"])
        assert took == pytest.approx(report["timed_call"]["busy_seconds"])
        for kind in ("ops", "kernels", "modules", "origins"):
            assert sum(row["seconds"] for row in report[kind]) == pytest.approx(took)
            assert sum(row["share"] for row in report[kind]) == pytest.approx(1)
            assert sum(row["dispatches"] for row in report[kind]) == len(report["dispatches"])
        call = report["timed_call"]
        assert call["busy_seconds"] + call["between_seconds"] == pytest.approx(call["device_seconds"])
        assert sum(call["parts"].values()) + call["rest"] == pytest.approx(call["seconds"])
        host = report["host"]
        assert sum(s["seconds"] for s in host["spans"]) + host["rest"] == pytest.approx(host["seconds"])

    def test_products_have_arithmetic_and_all_have_bytes(self, name, report):
        expected = {
            "llama": "aten.linear.default",
            "minilm": "aten.linear.default",
            "mtcnn_pnet": "aten.convolution.default",
        }
        product = next(op for op in report["ops"] if op["name"] == expected[name])
        assert product["flops"] > 0 and product["flops_per_second"] > 0
        assert all(d["bytes"] > 0 and d["shapes"].count("→") == 1 for d in report["dispatches"])
        assert report["peak"] is None

    def test_host_spans_are_named(self, name, report):
        names = {span["name"] for span in report["host"]["spans"]}
        assert {"check inputs", "lower", "convert inputs", "write", "record", "submit", "wait", "read"} <= names
        assert all(0 <= span["share"] <= 1 for span in report["host"]["spans"])


def test_profile_bytes_and_operations_equal_shapes():
    report = profiled("llama")
    with webpte.load(export("llama").path) as program:
        graph = program.graph("forward")
        weights = [graph.tensor(c.args[1]).dims for c in graph.calls if c.name == "aten.linear.default"]
    linears = [op for op in report["ops"] if "linear" in op["name"]]  # some with an ending that a pass gave them
    assert sum(op["flops"] for op in linears) == 2 * sum(math.prod(dims) for dims in weights)  # one token
    assert sum(op["bytes"] for op in linears) > 4 * sum(math.prod(dims) for dims in weights)


def test_profile_reports_cpu_calls_and_transfers(capsys):
    path = str(export("mixed_kernels").path)
    assert main(["profile", path, "--repeat", "1", "--no-roofline"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    report = profile_file(path, repeat=1, roofline=False)
    (name,) = report["cpu_calls"]
    assert report["submits"] == 2 and report["bytes_to_host"] > 0 and report["bytes_to_device"] > 0
    assert f"2 submits; {size(report['bytes_to_device'])} to the device" in shown and f"on the CPU: {name} ×1" in shown
    assert "CPU kernels" in {span["name"] for span in report["host"]["spans"]}


def test_layers_are_modules():
    report = profiled("minilm")
    blocks = [row for row in report["modules"] if row["name"].startswith("block ")]
    assert {row["name"] for row in blocks} == {f"block {i} of 6" for i in range(1, 7)}
    assert len({row["flops"] for row in blocks}) == 1


def test_profile_without_timestamps_uses_host_clock(monkeypatch, capsys):
    monkeypatch.setattr(timing, "TIMESTAMP_FEATURE", "a feature no device has")
    path = str(export("mtcnn_pnet").path)
    assert main(["profile", path, "--input", "1x3x13x38:random", "--repeat", "1", "--no-roofline"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "each with a submit and a wait of its own, because the device has no timestamp queries" in shown
    assert "aten.convolution.default" in shown


class TestCommand:
    def test_tables(self, capsys, tmp_path):
        path = str(export("llama").path)
        options = [part for spec in DECODE for part in ("--input", spec)]
        assert main(["profile", path, *options, "--repeat", "2", "--trace", str(tmp_path / "t.json")]) == 0
        shown = capsys.readouterr().out
        for word in (
            "aten.linear.default",
            "GFLOP/s",
            "of peak",
            "timestamp queries",
            "between them",
            "ui.perfetto.dev",
        ):
            assert word in shown
        assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]

    def test_json(self, capsys):
        assert main(["profile", str(export("llama").path), "--input", "1x1:5", "--repeat", "1", "--json"]) == 0
        report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert report["timestamps"] and report["peak"]["bytes_per_second"] > 0
        assert np.isfinite([d["seconds"] for d in report["dispatches"]]).all()

    def test_profile_repeat_zero_is_refused(self):
        with raises(InputError, "repeat", 0):
            profile_file(export("llama").path, repeat=0)

    def test_profile_unwritable_trace_is_refused(self, tmp_path):
        with raises(InputError, tmp_path / "no" / "t.json"):
            profile_file(
                export("llama").path, inputs=DECODE, repeat=1, roofline=False, trace=tmp_path / "no" / "t.json"
            )


def test_profile_leaves_method_unchanged():
    """A method that was profiled runs as before: no one watches it, and the counters per call are the same."""
    with webpte.load(export("llama").path) as program:
        method = program.method()
        args = [np.array([[5]]), np.array([7])]
        method.run(args)
        before = method.counters.snapshot()
        method.run(args)
        usual = method.counters.since(before)
        profile(method, args, repeat=1, roofline=False)
        before = method.counters.snapshot()
        method.run(args)
        after = method.counters.since(before)
        after.wait_seconds = usual.wait_seconds = 0
        assert after == usual and (after.passes, after.submits, after.buffers, after.bind_groups) == (1, 1, 0, 0)
        assert method._executor.observer is NO_OBSERVER


@pytest.mark.slow
def test_profile_real_language_model_is_attributed(tmp_path, capsys):
    path = tmp_path / "trace.json"
    report = profile_file(smollm2("4w").path, inputs=("0=1x1:17", "1=64"), repeat=3, trace=path)
    host, device = asked(path, report, tmp_path)
    with capsys.disabled():
        print(f"\nattributed {report['timed_call']['attributed']:.2%}, in the trace {host:.2%} and {device:.2%}")
    assert host >= 0.95 and device >= 0.95 and report["timed_call"]["attributed"] >= 0.95
