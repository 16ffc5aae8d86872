"""Programs with XNNPACK delegates give what the executorch wheel gives."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.studies.xnnpack.facts import SAMPLES
from tests.studies.xnnpack.running import FOLDER, LLMS, compare, difference, golden_calls
from webpte.container import DType
from webpte.fusion.batching import with_slots

F32 = 1e-6  # of the largest value of an output
F16 = 1e-3  # one unit of f16 at 0.7
RIGHT = {
    "attention": F32,
    "bert_dyn": F32,
    "bf16_linear": 8e-3,  # no delegate; one unit of bf16 at 0.7
    "conv1d_lstm_speech": F32,
    "conv_bn_relu": F32,
    "conv_channels_last_io": F32,
    "conv_int8_pc": 0.0,
    "conv_int8_pt": 0.0,
    "conv_qd8": F32,
    "conv_qd8_1x1": F32,
    "conv_qd8_3x3": F32,
    "conv_transpose": F32,
    "depthwise": F32,
    "elementwise": F32,
    "external_weights": F32,
    "fp16": F16,
    "fp16_8da4w": F16,
    "gru": F32,
    "inline_blob": F32,
    "legacy_offsets_8da4w": F32,
    "legacy_offsets_fp32": F32,
    "legacy_xn00_8da4w": F32,
    "legacy_xn00_fp32": F32,
    "linear_8da4w_g32": F32,
    "linear_8da4w_pc": F32,
    "linear_fp32": F32,
    "linear_fp32_dynbatch": F32,
    "linear_int8_static": 0.0,
    "linear_qd8_qc4w": F32,
    "linear_qd8_qc4w_odd": 1e-2,  # the wheel is wrong; eager PyTorch has one scale for all rows
    "linear_qd8_qc8w": F32,
    "linear_qd8_qc8w_all": F32,
    "llama_8da4w": F32,
    "llama_fp32_q8kv": F32,
    "mixed_vulkan_xnnpack": F32,
    "mv2_fp32": F32,
    "mv2_int8": 0.0,
    "mv3_fp32": F32,
    "pooling": F32,
    "resize_pad_cat": F32,
    "vit_block": F32,
}


def test_xnnpack_samples_are_all_listed():
    assert sorted(RIGHT) == [path.stem for path in SAMPLES]


@pytest.mark.parametrize("name", RIGHT)
def test_sample_gives_the_results_of_the_wheel(name, device):
    difference = compare(name)
    assert difference.relative <= RIGHT[name], difference


def test_llama_that_rotates_halves_gives_the_results_of_the_wheel(device):
    difference = compare("llama_halves_8da4w", LLMS)
    assert difference.relative <= F32, difference


@pytest.mark.parametrize(
    ("path", "calls"),
    [
        (FOLDER / "llama_8da4w.pte", 23),
        (LLMS / "llama_halves_8da4w.pte", 23),
        (FOLDER / "llama_fp32_q8kv.pte", 75),
    ],
)
def test_step_of_a_llama_is_one_submit(path, calls, device):
    with webpte.load(path) as program:
        plan = program.method("forward").plan
    assert len(plan.flow.segments) == 1
    assert len(plan.graph.steps) == calls


def test_batched_llama_with_an_int8_cache_is_as_precise_as_the_wheel(device):
    """Slots have another int8 cache than the wheel. Its logits are as near to those of an f32 cache as the wheel's."""
    wheel = [outputs[0] for _, outputs in golden_calls("llama_fp32_q8kv")]
    with webpte.load(FOLDER / "llama_fp32_q8kv.pte") as program:
        bytes_, floats = (_logits_by_slots(program, dtype) for dtype in (DType.INT8, DType.FLOAT32))
    assert difference(list(zip(bytes_, wheel, strict=True))).relative <= 1e-2
    assert (
        difference(list(zip(bytes_, floats, strict=True))).absolute
        <= difference(list(zip(wheel, floats, strict=True))).absolute
    )


def _logits_by_slots(program, dtype):
    method = program.method("forward", lambda graph: with_slots(graph, 2, {DType.INT8: dtype}).graph)
    logits = []
    for (tokens, (start,)), _ in golden_calls("llama_fp32_q8kv"):
        rows = tokens.shape[1]
        places = np.array([(1, start + row) for row in range(rows)], np.int32)
        logits.append(method(tokens, places, int(rows == 1), np.array([rows - 1], np.int32), 0))
    return logits


def test_int8_network_has_no_calls_for_residuals_and_permutations(device):
    with webpte.load(FOLDER / "mv2_int8.pte") as program:
        names = [call.name for call in program.method("forward").plan.graph.calls]
    assert not {"webpte.int8_add", "aten.permute_copy.default"} & set(names)
    assert len(names) == 16


def test_delegates_of_both_kinds_are_one_submit(device):
    with webpte.load(FOLDER / "mixed_vulkan_xnnpack.pte") as program:
        plan = program.method("forward").plan
    assert len({call.origin.delegate for call in plan.graph.calls}) > 1
    assert len(plan.flow.segments) == 1


@pytest.mark.parametrize("name", ["mv2_fp32", "conv_bn_relu", "conv_channels_last_io", "depthwise"])
def test_transposes_around_convolutions_vanish(name, device):
    with webpte.load(FOLDER / f"{name}.pte", passes=()) as program:
        called = [call.name for call in program.method("forward").plan.graph.calls]
    assert "aten.permute_copy.default" not in called


def test_saved_plan_has_the_constants_that_no_file_has(device, tmp_path):
    golden = np.load(FOLDER / "conv_bn_relu.npz")
    with webpte.load(FOLDER / "conv_bn_relu.pte") as program:
        method = program.method("forward")
        method(golden["c0_in0"])
        method.save(tmp_path / "plan")
    with webpte.open_plan(tmp_path / "plan", [FOLDER / "conv_bn_relu.pte"]) as plan:
        result = plan.method()(golden["c0_in0"])
    np.testing.assert_allclose(result, golden["c0_out0"], atol=1e-6)
