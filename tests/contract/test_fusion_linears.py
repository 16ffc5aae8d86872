"""The passes over 4-bit layers and views, each switched off and on, on Llamas exported by ExecuTorch."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.export.exporting import export
from tests.support.harness.cases import assert_close
from webpte.fusion import PASSES

# What each saves in two layers of a Llama, and how far results may be apart.
CALLS = {
    "identities": 2 * 3 + 2,
    "gated-linears": 2 * 2,
    "joined-linears": 2 * 2,
    "epilogues": 2 * 2,
    "norm-linears": 2 * 2 + 1,
}
# A view costs nothing on the device, and only kernels for GPUs normalize.
SAME_DISPATCHES = ("identities", "norm-linears")
PROGRAMS = {
    "llama_4w": (CALLS, 1e-5),
    "llama_4w_fp16": ({**CALLS, "epilogues": 2 * 2 + 1}, 4e-3),  # the logits become f32
    "llama_hfrope_4w": (CALLS, 1e-5),
    "llama_8da4w": ({**CALLS, "identities": 2, "qparams": 2 * 3, "row-qparams": 2 * 4 + 1}, 1e-5),
}


def logits(name: str, passes: tuple[str, ...]) -> tuple[list[np.ndarray], dict[str, int], int]:
    """Results of every step, calls saved by each pass, and the dispatches of the last step, one token."""
    exported = export(name)
    results: list[np.ndarray] = []
    with webpte.load(exported.path, passes=passes, tune="off") as program:
        forward = program.method()
        for step in exported.sequences[0]:
            before = forward.counters.snapshot()
            results += forward.run(step.inputs)
        return results, forward.plan.passes, forward.counters.since(before).dispatches


@pytest.mark.gpu
@pytest.mark.parametrize("name", PROGRAMS)
def test_linear_fusion_each_pass_same_results_fewer_calls(name):
    saved, tolerance = PROGRAMS[name]
    expected, applied, fewest = logits(name, tuple(PASSES))
    assert {pass_: count for pass_, count in applied.items() if pass_ in saved} == saved
    for off in saved:
        results, applied, dispatches = logits(name, tuple(other for other in PASSES if other != off))
        assert off not in applied
        assert dispatches >= fewest + (0 if off in SAME_DISPATCHES else 2)
        for number, (got, want) in enumerate(zip(expected, results, strict=True)):
            assert_close(got, want, tolerance, tolerance, f"{name} without {off}, result {number}")


@pytest.mark.gpu
def test_linear_fusion_layer_has_four_dispatches():
    with webpte.load(export("llama_4w").path, tune="off") as program:
        forward = program.method()
        (schedule,) = forward.planner.lower(
            {i: (1,) * len(forward.plan.graph.tensor(i).dims) for i in forward.plan.graph.inputs}
        )
        linears = [call for call in schedule.calls if "linear" in forward.plan.graph.call(call.step).name]
    layer = [2, 1, 2, 1]  # with a norm before queries, keys and values, and before the gate
    assert [len(call.dispatches) for call in linears] == [*layer, *layer, 2]


@pytest.mark.gpu
def test_kernels_for_gpus_normalize_in_the_layer(monkeypatch):
    """A token takes a dispatch less for each norm, and its logits stay."""
    monkeypatch.setenv("WEBPTE_DEVICE", "gpu")
    fused, _, fewer = logits("llama_4w", tuple(PASSES))
    apart, _, dispatches = logits("llama_4w", tuple(name for name in PASSES if name != "norm-linears"))
    assert dispatches == fewer + 2 * 2 + 1
    for number, (got, want) in enumerate(zip(fused, apart, strict=True)):
        assert_close(got, want, 1e-5, 1e-5, f"result {number}")
