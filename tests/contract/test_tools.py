"""`webpte check`, `run` and `bench` on real exports, whole and broken."""

from __future__ import annotations

import json
import re
import sys
from datetime import datetime
from typing import Any

import numpy as np
import pytest

from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from tests.support.harness.children import NO_ADAPTER, run_webpte
from tests.support.harness.faults import largest_key, plant, renamed
from webpte.cli import main
from webpte.debug.check import BROWSER, check_file, device_caps
from webpte.debug.run import run_file
from webpte.measure import bench
from webpte.measure.bench import bench_file, plot_bench

NAMES = ("llama", "minilm", "mtcnn_pnet")
pytestmark = pytest.mark.timeout(3600)  # with a cold cache a test exports what it looks at


class TestCheck:
    @pytest.mark.parametrize("name", NAMES)
    def test_check_running_program_has_no_problems(self, name):
        report = check_file(export(name).path, caps=BROWSER)
        assert report["ok"] and not report["problems"]
        (forward,) = [m for m in report["methods"] if m["name"] == "forward"]
        assert forward["submits"] == 1 and not forward["cpu_calls"]
        assert 0 < report["memory"]["constant"] <= 1.01 * report["bytes"]
        assert (report["memory"]["state"] > 0) is (name == "llama")
        assert all(limit["needs"] <= limit["offers"] for limit in forward["limits"])

    @pytest.mark.parametrize(
        ("name", "op", "limit"),
        [
            ("llama", "et_vk.rms_norm.default", 8 << 10),
            ("minilm", "aten.gelu.default", 16 << 20),
            ("mtcnn_pnet", "aten.max_pool2d_with_indices.default", 256 << 10),
        ],
    )
    def test_check_without_gpu_reports_three_faults(self, name, op, limit, tmp_path):
        source, broken = export(name).path, tmp_path / "broken.pte"
        key = largest_key(source)
        plant(source, broken, renamed(op, "test.unheard_of.default"), drop=key)
        limits = f"max-buffer-size={limit}"
        done = run_webpte("check", broken, "--limits", limits, "--json", environment=NO_ADAPTER)
        assert done.returncode == 1, done.stderr
        report = json.loads(done.stdout)
        results = {kind: [p for p in report["problems"] if p["kind"] == kind] for kind in ("constant", "op", "limit")}
        assert {p["kind"] for p in report["problems"]} == set(results)
        assert all(f"key {key}" == p["subject"] and "node" in p["where"][-1] for p in results["constant"])
        (unknown,) = results["op"]
        assert unknown["subject"] == "test.unheard_of.default" and "node" in unknown["where"][0]
        assert all(f"the device allocates {limit}" in p["detail"] and "node" in p["where"][0] for p in results["limit"])
        advice = " ".join(report["remedies"])
        assert "operator_blocklist=[exir_ops.edge.test.unheard_of.default]" in advice and "--data" in advice

    def test_check_command_uses_this_adapter(self, capsys):
        assert main(["check", str(export("llama").path)]) == 0
        assert device_caps().adapter in capsys.readouterr().out


class TestRun:
    @pytest.mark.parametrize("name", NAMES)
    def test_run_outputs_equal_eager(self, name, tmp_path):
        step = export(name).steps[0]
        np.savez(tmp_path / "in.npz", allow_pickle=False, **{f"in{i}": x for i, x in enumerate(step.inputs)})
        saved = tmp_path / "out.npz"
        report = run_file(export(name).path, inputs=[str(tmp_path / "in.npz")], repeat=1, save=saved)
        with np.load(saved) as arrays:
            for position, want in enumerate(step.outputs):
                assert_close(arrays[f"out{position}"], want, 1e-4, 1e-4, f"{name}, output {position}")
                details = report["outputs"][position]
                assert details["shape"] == list(want.shape) and details["nonfinite"] == 0
                assert details["mean"] == pytest.approx(want.mean(dtype=np.float64), abs=1e-4)
        assert 0 < report["load"]["compile"] < report["load"]["total"]
        warm = report["warm"]
        assert warm is not None and warm["calls"] == 1 and warm["min"] <= report["first_call"] * 10

    @pytest.mark.parametrize("name", NAMES)
    def test_run_missing_inputs_are_generated(self, name, capsys):
        assert main(["run", str(export(name).path), "--repeat", "0"]) == 0
        out = capsys.readouterr().out
        assert "random, seed 0" in out and "first call" in out and "warm" not in out

    def test_json_and_a_shape_below_the_bound(self, capsys):
        assert main(["run", str(export("llama").path), "--input", "1x3:0..9", "--json", "--repeat", "2"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [i["shape"] for i in report["inputs"]] == [[1, 3], [1]]
        assert report["outputs"][0]["shape"] == [1, 128]

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--input", "1x99:ones"], r"InputError: input 0 .*\[1, 99\]"),
            (["--method", "backward"], "'backward'"),
            (["--input", "nobody=1x3:ones"], "got 'nobody'"),
        ],
    )
    def test_mistakes_are_one_message(self, arguments, message, capsys):
        assert main(["run", str(export("llama").path), *arguments]) == 1
        assert_matches(message, capsys.readouterr().err)

    def test_broken_programs(self, tmp_path, capsys):
        source = export("mtcnn_pnet").path
        plant(
            source, tmp_path / "renamed.pte", renamed("aten.max_pool2d_with_indices.default", "test.unheard_of.default")
        )
        assert main(["run", str(tmp_path / "renamed.pte")]) == 1
        assert "UnsupportedError: 1 op of forward cannot run" in capsys.readouterr().err
        plant(source, tmp_path / "dropped.pte", drop=largest_key(source))
        assert main(["run", str(tmp_path / "dropped.pte")]) == 1
        assert "DataError: forward: 1 constant without data" in capsys.readouterr().err


class TestBench:
    @pytest.fixture(autouse=True)
    def few_sizes(self, monkeypatch):
        monkeypatch.setattr(bench, "FRACTIONS", (16, 8))

    def test_bench_language_model_reports_host_time(self, monkeypatch):
        monkeypatch.setattr(bench, "MAX_BUDGETS", 1e9)  # a machine that is busy is not a reason to leave out lengths
        report: Any = bench_file(export("llama").path, seconds=0.02)
        assert report["kind"] == "language model" and report["capacity"] == 64
        assert [p["tokens"] for p in report["prefill"]] == [16, 31, 62, 63]
        assert [p["context"] for p in report["decode"]] == [16, 60]
        for point in report["prefill"] + report["decode"]:
            assert 0 < point["min"] <= point["median"] <= point["p90"] and point["tokens_per_second"] > 0
        assert all(p["paced_tokens_per_second"] > 0 and 1 <= p["per_submit"] <= 8 for p in report["decode"])
        assert report["memory"]["state"] == 2 * 2 * 64 * 2 * 16 * 4  # layers, K and V, rows, heads, head size, f32
        host = report["host"]
        assert host["submits"] == 1 and 0 < host["busy"] < host["call"]
        assert host["per_dispatch"] == pytest.approx(host["busy"] / host["dispatches"])

    def test_prompts_that_take_too_long_are_left_out_and_said_to_be(self, monkeypatch, capsys):
        monkeypatch.setattr(bench, "MAX_BUDGETS", 0)
        assert main(["bench", str(export("llama").path), "--seconds", "0.01"]) == 0
        assert "not measured: 31, 62, 63 tokens" in capsys.readouterr().out

    @pytest.mark.parametrize(
        ("name", "shapes"),
        [
            ("minilm", [[[1, 7], [1, 7]], [[1, 15], [1, 15]]]),
            ("mtcnn_pnet", [[[1, 3, 15, 20]]]),  # 7x10 is too small for its convolutions
        ],
    )
    def test_programs_by_size(self, name, shapes):
        report: Any = bench_file(export(name).path, seconds=0.02)
        assert report["kind"] == "program" and [p["shapes"] for p in report["sizes"]] == shapes
        assert report["host"]["dispatches"] > 5
        for load in ("cold", "warm"):
            stages = report["load"][load]
            assert sum(t for name, t in stages.items() if name != "total") == pytest.approx(stages["total"], rel=0.01)

    def test_bench_json_has_device_and_plot_is_png(self, tmp_path, capsys):
        plot = tmp_path / "bench.png"
        arguments = ["bench", str(export("llama").path), "--seconds", "0.01", "--plot", str(plot), "--json"]
        assert main(arguments) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["machine"]["adapter"] == device_caps().adapter and "wgpu" in report["machine"]["versions"]
        assert datetime.fromisoformat(report["machine"]["date"]).tzinfo is not None
        assert plot.read_bytes().startswith(b"\x89PNG") and plot.stat().st_size > 5000

    def test_bench_command_prints_readable_report(self, capsys, tmp_path):
        assert main(["bench", str(export("mtcnn_pnet").path), "--seconds", "0.01"]) == 0
        out = capsys.readouterr().out
        for text in ("cold", "warm", "GPU memory: weights 26.6 kB", "1x3x15x20", "per dispatch"):
            assert text in out, out
        plot_bench(bench_file(export("mtcnn_pnet").path, seconds=0.01), tmp_path / "sizes.png")
        assert (tmp_path / "sizes.png").exists()

    def test_bench_plot_without_matplotlib_names_package(self, monkeypatch, capsys):
        monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
        assert main(["bench", str(export("llama").path), "--plot", "x.png"]) == 1
        assert "pip install matplotlib" in capsys.readouterr().err

    def test_command_broken_program_is_refused(self, tmp_path, capsys):
        source = export("minilm").path
        plant(source, tmp_path / "renamed.pte", renamed("aten.gelu.default", "test.unheard_of.default"))
        assert main(["bench", str(tmp_path / "renamed.pte")]) == 1
        assert "test.unheard_of.default (x" in capsys.readouterr().err


def assert_matches(pattern, text):
    assert re.search(pattern, text), text
