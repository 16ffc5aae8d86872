"""The memory trace of whole programs: every kernel can be traced, and results keep their bits."""

from __future__ import annotations

import json

import numpy as np
import pytest

import webpte
from bench.trace.__main__ import main
from bench.trace.programs import accesses
from bench.trace.run import device_for_traces, trace_call
from tests.support.export.exporting import export
from tests.support.harness.gate import slow_but

PROGRAMS = [(name, device) for name in ("llama_4w_emb4", "mtcnn_rnet", "hf_resnet") for device in ("", "gpu")]
KEPT = [("llama_4w_emb4", "gpu"), ("mtcnn_rnet", "gpu")]  # a software device compiles traced kernels for seconds each


@pytest.mark.parametrize("case", slow_but(KEPT, PROGRAMS), ids=str)
def test_traced_calls_have_the_same_bits(case, monkeypatch):
    name, device = case
    monkeypatch.setenv("WEBPTE_DEVICE", device)
    exported = export(name)
    with device_for_traces(), webpte.load(exported.path) as program:
        sequence = exported.sequences[0][:2]
        methods = {step.method: program.method(step.method) for step in sequence}
        plain = {name: method.fork() for name, method in methods.items()}
        for step in sequence:
            outputs = plain[step.method].run(step.inputs)
            call = trace_call(methods[step.method], step.inputs, workgroups=2)
            assert call.traces and not call.failures
            for traced, output in zip(call.outputs, outputs, strict=True):
                np.testing.assert_array_equal(traced, output)
            if case == ("llama_4w_emb4", "gpu"):
                check_limits(list(accesses(call, 2)), decode=step.inputs[0].size == 1)


def check_limits(result, decode):
    """Weights are requested once in decode, segments of caches are used, and no bank conflict is above 2-way."""
    constants = [a for a in result if a.kind == "constant"]
    weights = [a for a in constants if a.variable.startswith("weight") and a.kernel.startswith("linear")]
    caches = [a for a in result if a.kind == "state"]
    assert weights and caches
    assert not decode or all(a.requested <= 1.05 and a.use >= 0.95 for a in weights)
    assert all(a.share >= 0.8 for a in caches)
    shared = [a for a in result if a.kind == "workgroup" and not a.kernel.startswith("linear_q4_lanes")]  # a few sums
    assert all(a.ways <= 2 for a in shared)


def test_command_prints_figures_of_the_kernels(capsys):
    path = str(export("llama_4w").path)
    assert (
        main([path, "--input", "1x5:0..99", "0", "--input", "1x1:0..99", "5", "--kernel", "linear_q4", "--json"]) == 0
    )
    report = json.loads(capsys.readouterr().out)
    assert report["failures"] == {} and all(label.startswith("linear_q4") for label in report["kernels"])
    assert main([path, "--input", "1x5:0..99", "0", "--kernel", "rms_norm", "--sites"]) == 0
    assert "weight load" in capsys.readouterr().out
    assert main([path, "--input", "1x5:0..99", "0", "--kernel", "rms_norm", "--records", "9"]) == 1
    assert "not traced: records: expected at most 9" in capsys.readouterr().out
