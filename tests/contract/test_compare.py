"""`webpte compare` on real exports: all within tolerance as they are, and the op that a test has broken named first."""

from __future__ import annotations

import json
import re
import runpy

import numpy as np
import pytest

import webpte
from tests.studies.xnnpack.running import FOLDER
from tests.support.export.exporting import export
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_rows_but
from webpte.cli import main
from webpte.debug.compare import Tolerance, capture, compare, compare_file, compare_with
from webpte.errors import UnsupportedError
from webpte.lowering import registered

pytestmark = pytest.mark.timeout(3600)  # with a cold cache a test exports what it looks at

EVERY = [
    (*steps, joined)
    for steps in (
        ("llama", 0, 3), ("llama_8da4w", 0, 2), ("llama_4w_fp16", 0, 2), ("minilm", 1, 1), ("mtcnn_pnet", 1, 2)
    )
    for joined in (True, False)
]  # fmt: skip
IN_THE_GATE = [("llama", 0, 3, False), ("llama_8da4w", 0, 2, True), ("llama_4w_fp16", 0, 2, True)]
IN_THE_GATE += [("mtcnn_pnet", 1, 2, True)]
NORM = "aten.native_layer_norm.default"


def compared(name, count, first=0, **options):
    exported = export(name)
    steps = [step.inputs for step in exported.steps][first : first + count]
    with webpte.load(exported.path, passes=()) as program:
        return compare(program, "forward", steps, **options)


def saved_inputs(name, step, folder):
    """Inputs of an exported model as files, and the options that name them."""
    options = []
    for position, array in enumerate(export(name).steps[step].inputs):
        np.save(folder / f"in{position}.npy", array)
        options += ["--input", f"{position}={folder / f'in{position}.npy'}"]
    return options


@pytest.mark.parametrize(("name", "first", "count", "joined"), slow_rows_but(IN_THE_GATE, EVERY))
def test_compare_correct_export_is_within_tolerance(name, first, count, joined):
    report = compared(name, count, first, joined=joined)
    assert report.ok, report.first or [end for end in report.ends if not end.difference.within]
    assert {call.step for call in report.calls} == set(range(count))
    computing = [call for call in report.calls if call.skipped != "no tensor is computed"]
    assert computing and all(call.outputs and call.skipped is None for call in computing)
    assert not report.gaps and {"references", "no shared buffers"} <= {end.against for end in report.ends}
    assert any(op.max_relative > 0 for op in report.ops)  # otherwise nothing was computed twice


def test_attention_sees_state_of_earlier_calls():
    """A KV cache of zeros would give other numbers: the second step's caches hold what the first wrote."""
    report = compared("llama", 2)
    caches = [call for call in report.calls if "sdpa" in call.op or "attention" in call.op]
    assert len(caches) == 4 and all(len(call.outputs) == 3 and not call.outside for call in caches)
    alone = compared("llama", 1)
    assert len(alone.calls) * 2 == len(report.calls)


def test_compare_memory_limit_captures_in_pieces(monkeypatch):
    """Several runs for each call, each from the state it has to have, and no memory left by any."""
    whole = compared("llama", 2)
    monkeypatch.setattr(capture, "MAX_READBACK_BYTES", 200_000)
    opened, load = [], webpte.Program.method

    def counted(self, *args, **options):
        opened.append(load(self, *args, **options))
        return opened[-1]

    monkeypatch.setattr(webpte.Program, "method", counted)
    pieces = compared("llama", 2)
    assert pieces.ok and len(opened) >= 6 and all(method.closed for method in opened)
    assert [call.outputs for call in pieces.calls] == [call.outputs for call in whole.calls]


class TestBrokenKernel:
    """One of MiniLM's 13 layer norms adds too much to the variance."""

    @pytest.fixture
    def broken(self, monkeypatch):
        with webpte.load(export("minilm").path) as program:
            call = [call for call in program.graph("forward").calls if call.name == NORM][6]
        op = registered()[NORM]
        lower = op.lower

        def wrong(cx, x, shape, weight, bias, eps, *, out):
            lower(cx, x, shape, weight, bias, eps + 0.1 * (out[0].id == call.outs[0]), out=out)

        monkeypatch.setattr(op, "lower", wrong)
        return call

    def test_compare_wrong_op_is_first_and_only(self, broken):
        report = compared("minilm", 1, first=1)
        assert report.first is not None
        assert (report.first.op, report.first.origin) == (NORM, str(broken.origin))
        assert [call.origin for call in report.calls if call.outside] == [str(broken.origin)]
        assert {end.against for end in report.ends if not end.difference.within} == {"references"}

    def test_compare_command_names_wrong_op_and_writes_repro(self, broken, tmp_path, capsys):
        options = saved_inputs("minilm", 1, tmp_path)
        assert main(["compare", str(export("minilm").path), *options, "--repro", str(tmp_path / "repro")]) == 1
        shown = " ".join(capsys.readouterr().out.split())
        assert f"first out of tolerance: {NORM} ({broken.origin})" in shown
        assert re.search(r"1 of \d+ calls out of tolerance, 1 of 3 end-to-end comparisons out of tolerance", shown)
        (script,) = (tmp_path / "repro").glob("*.py")
        assert script.with_suffix(".npz").stat().st_size < 200_000
        # The script runs in a process whose kernels are right: it then finds nothing wrong.
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(script), run_name="__main__")
        assert not ended.value.code
        assert capsys.readouterr().out.count("within tolerance") == 3

    def test_compare_repro_reproduces_difference(self, monkeypatch, tmp_path, capsys):
        """Where every layer norm is wrong, so is the one of the script."""
        op = registered()[NORM]
        lower = op.lower

        def wrong(cx, x, shape, weight, bias, eps, *, out):
            lower(cx, x, shape, weight, bias, eps + 0.1, out=out)

        monkeypatch.setattr(op, "lower", wrong)
        inputs = [["0=1x7:0..99", "1=1x7:1"]]
        report = compare_file(export("minilm").path, inputs=inputs, repro=tmp_path)
        assert report["repro"] and not report["ok"]
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(report["repro"][0], run_name="__main__")
        assert ended.value.code
        first = next(call for call in report["calls"] if call["outside"])
        expected = [actual["text"] for actual in first["outputs"].values()]
        assert capsys.readouterr().out.splitlines() == expected


class TestBranches:
    @pytest.mark.parametrize("name", ["branch", "branch_on_data"])
    def test_compare_branch_compares_taken_calls(self, name):
        exported = export(name)
        taken = set()
        with webpte.load(exported.path, passes=()) as program:
            for step in exported.steps[:2]:
                report = compare(program, "forward", [step.inputs])
                assert report.ok and report.ends
                taken.add(tuple(call.op for call in report.calls))
        assert len(taken) == 2

    def test_compare_several_branch_steps_refused(self):
        steps = [step.inputs for step in export("branch").steps]
        refused = raises(UnsupportedError, "forward", 2, code="branches")
        with webpte.load(export("branch").path, passes=()) as program, refused:
            compare(program, "forward", steps[:2])


class TestAgainstAnotherProgram:
    def run(self, name, other, **options):
        steps = [step.inputs for step in export(name).sequences[0]][:2]
        with webpte.load(export(name).path, passes=()) as a, webpte.load(export(other).path, passes=()) as b:
            return compare_with(a, b, "forward", steps, **options)

    def test_compare_programs_same_program_agrees(self):
        report = self.run("llama", "llama")
        assert report.ok and all(result.max_error == 0 for call in report.calls for result in call.outputs.values())

    def test_compare_programs_differ_at_first_quantized_layer(self):
        report = self.run("llama", "llama_4w")
        assert not report.ok and report.first is not None
        before = [call for call in report.calls if call.index < report.first.index and call.step == 0]
        assert "aten.embedding.default" in {call.op for call in before}  # a norm is part of its layer
        assert not all(end.difference.within for end in report.ends)
        assert self.run("llama", "llama_4w", tolerance=Tolerance(rtol=10)).ok


class TestCommand:
    def test_json(self, capsys):
        path = str(export("llama").path)
        code = main(["compare", path, "--input", "1x5:0..99", "--then", "--input", "1x1:7", "--input", "5", "--json"])
        report = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        assert code == 0 and report["ok"] and report["first_outside"] is None
        assert len(report["inputs"]) == 2 and {call["step"] for call in report["calls"]} == {0, 1}
        assert all(len(op["histogram"]) == len(report["histogram_edges"]) + 1 for op in report["ops"])

    def test_state_from_a_file(self, tmp_path):
        exported = export("llama")
        first, second = (step.inputs for step in exported.sequences[0][:2])
        with webpte.load(exported.path) as program:
            program.method().run(first)
            program.method().snapshot(tmp_path / "state")
        with webpte.load(exported.path, passes=()) as program:
            report = compare(program, "forward", [second], state=tmp_path / "state")
        assert report.ok

    def test_against_a_file(self, capsys):
        one, other = (str(export(name).path) for name in ("llama", "llama_4w"))
        assert main(["compare", one, "--against", other, "--input", "1x5:0..99"]) == 1
        assert "first out of tolerance" in capsys.readouterr().out

    def test_compare_command_lists_all_calls(self, capsys):
        assert (
            main(["compare", str(export("mtcnn_pnet").path), "--input", "1x3x13x38:random", "--calls", "--no-passes"])
            == 0
        )
        out = capsys.readouterr().out
        assert out.count("aten.convolution.default") >= 3 and "all outputs are within tolerance" in out


@pytest.mark.parametrize("name", ["attention", "conv_int8_pc"])
def test_results_of_delegates_equal_wheel(name):
    """Each delegate, and each kernel between, where there are some."""
    report = compare_file(FOLDER / f"{name}.pte", against="executorch")
    assert report["ok"] and report["against"] == "executorch"
    assert {end["against"] for end in report["end_to_end"]} == {"executorch"}
    with webpte.load(FOLDER / f"{name}.pte") as program:
        delegates = {delegate.number for delegate in program.graph("forward").delegates}
    assert {call["origin"] for call in report["calls"]} >= {f"delegate {number}" for number in delegates}
    assert all(output["within"] for call in report["calls"] for output in call["outputs"].values())


@pytest.mark.slow
def test_state_is_compared_with_the_wheel_over_several_calls(tmp_path):
    inputs = [["1x1:7", f"1:{position}"] for position in range(2)]
    report = compare_file(
        FOLDER / "llama_fp32_q8kv.pte", against="executorch", inputs=inputs, tolerance=Tolerance(1e-3)
    )
    assert report["ok"] and {end["step"] for end in report["end_to_end"]} == {0, 1}
    assert {call["step"] for call in report["calls"]} == {0}


def test_wheel_without_the_backend_of_a_file_is_named():
    with raises(UnsupportedError, "executorch wheel cannot run forward", "VulkanBackend", "--against reference"):
        compare_file(FOLDER / "mixed_vulkan_xnnpack.pte", against="executorch")
