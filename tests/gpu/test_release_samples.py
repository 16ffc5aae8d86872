"""Files that older releases of ExecuTorch wrote: kept, so that they run without those releases."""

from __future__ import annotations

from pathlib import Path

import pytest

import webpte
from tests.studies.versions.running import Kind, outcome

SAMPLES = Path(__file__).parents[1] / "studies" / "versions" / "samples"
FILES = sorted(SAMPLES.glob("*/*.pte"))
# What each sample is kept for.
CALLS = {
    "0.7.0/int4": ["et_vk.linear_weight_int4.default"],
    "0.7.0/int8_linear": ["quantized_decomposed.dequantize_per_channel.default"],  # its zero points are int64
    "1.0.1/int8_cnn": ["et_vk.conv2d_q8ta_q8csw.default"],
    "1.0.1/int8_int4": ["torchao.choose_qparams_affine.default"],
    "1.0.1/int8_linear": ["et_vk.linear_q8ta_q8csw.default"],
    "1.0.1/mlp": [f"et_vk.binary_{name}_with_clamp.default" for name in ("add", "sub", "mul")],
    "1.1.0/int8_cnn": [
        "et_vk.add_q8ta_q8ta_q8to.default",
        "et_vk.conv2d_q8ta_q8csw_q8to.default",
        "et_vk.conv2d_q8ta_q8csw_q8to_dw.default",
    ],
}


@pytest.mark.parametrize("name", CALLS)
def test_sample_gives_the_results_of_eager_pytorch(name, device):
    result = outcome(SAMPLES / name)
    assert result.kind is Kind.RIGHT, result


@pytest.mark.parametrize("name", CALLS)
def test_release_sample_calls_its_ops(name, device):
    with webpte.load(SAMPLES / f"{name}.pte", passes=()) as program:
        called = {call.name for call in program.method("forward").plan.graph.calls}
    assert called >= set(CALLS[name])


def test_release_samples_have_reasons():
    assert [str(path.relative_to(SAMPLES).with_suffix("")) for path in FILES] == list(CALLS)
