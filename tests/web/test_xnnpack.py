"""Programs with XNNPACK delegates in a page give what the executorch wheel gives."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.gpu.test_xnnpack import F32, RIGHT
from tests.studies.xnnpack.running import FOLDER, difference, golden_calls
from tests.support.harness.gate import slow_but

from .calls import open_program, run

SAMPLES = (
    "bert_dyn", "conv_bn_relu", "conv_int8_pt", "elementwise", "linear_8da4w_g32", "linear_fp32_dynbatch",
    "mixed_vulkan_xnnpack", "mv2_int8",
)  # fmt: skip
IN_THE_GATE = ("linear_8da4w_g32", "mixed_vulkan_xnnpack")


@pytest.mark.parametrize("name", slow_but(IN_THE_GATE, SAMPLES))
def test_xnnpack_results_equal_wheel(name, server, page, tmp_path):
    calls = golden_calls(name)
    shapes = list(dict.fromkeys(tuple(np.shape(array) for array in inputs) for inputs, _ in calls))
    with webpte.load(FOLDER / f"{name}.pte") as program:
        webpte.bundle(program, tmp_path / "site", name=name, shapes={"forward": [list(dims) for dims in shapes]})
    server.folders["site"] = tmp_path / "site"
    assert open_program(page, f"{server.origin}/site/") in ("program", "image")
    results = [pair for inputs, outputs in calls for pair in zip(run(page, inputs, "forward"), outputs, strict=True)]
    assert difference(results).relative <= max(RIGHT[name], 5 * F32 if RIGHT[name] else 0.0)
