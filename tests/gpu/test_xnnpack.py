"""Programs with XNNPACK delegates give what the executorch wheel gives."""

from __future__ import annotations

import pytest

import webpte
from tests.support.harness.errors import raises
from tests.xnnpack.facts import SAMPLES
from tests.xnnpack.running import FOLDER, compare

F32 = 1e-6  # of the largest value of an output
RIGHT = {
    "attention": F32,
    "bert_dyn": F32,
    "bf16_linear": 8e-3,  # no delegate; one unit of bf16 at 0.7
    "conv1d_lstm_speech": F32,
    "conv_bn_relu": F32,
    "conv_channels_last_io": F32,
    "conv_transpose": F32,
    "depthwise": F32,
    "elementwise": F32,
    "external_weights": F32,
    "fp16": 1e-3,  # one unit of f16 at 0.7
    "gru": F32,
    "inline_blob": F32,
    "legacy_offsets_fp32": F32,
    "legacy_xn00_fp32": F32,
    "linear_fp32": F32,
    "linear_fp32_dynbatch": F32,
    "mixed_vulkan_xnnpack": F32,
    "mv2_fp32": F32,
    "mv3_fp32": F32,
    "pooling": F32,
    "resize_pad_cat": F32,
    "vit_block": F32,
}
# What each refused sample lacks. The list shrinks.
REFUSED = {
    "conv_int8_pc": "qint8",
    "conv_int8_pt": "qint8",
    "conv_qd8": "qdint8",
    "conv_qd8_1x1": "qdint8",
    "conv_qd8_3x3": "qdint8",
    "fp16_8da4w": "qdint8",
    "legacy_offsets_8da4w": "qdint8",
    "legacy_xn00_8da4w": "qdint8",
    "linear_8da4w_g32": "qdint8",
    "linear_8da4w_pc": "qdint8",
    "linear_int8_static": "qint8",
    "linear_qd8_qc4w": "qdint8",
    "linear_qd8_qc4w_odd": "qdint8",
    "linear_qd8_qc8w": "qdint8",
    "linear_qd8_qc8w_all": "qdint8",
    "llama_8da4w": "qdint8",
    "llama_fp32_q8kv": "custom_quantized_sdpa",
    "mv2_int8": "qint8",
}


def test_every_sample_is_listed():
    assert sorted([*RIGHT, *REFUSED]) == [path.stem for path in SAMPLES]


@pytest.mark.parametrize("name", RIGHT)
def test_sample_gives_the_results_of_the_wheel(name, device):
    difference = compare(name)
    assert difference.relative <= RIGHT[name], difference


@pytest.mark.parametrize("name", REFUSED)
def test_refused_sample_names_what_is_missing(name, device):
    with raises(webpte.UnsupportedError, REFUSED[name]), webpte.load(FOLDER / f"{name}.pte") as program:
        program.method("forward")


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
