"""Fresh exports of XnnpackPartitioner give what the executorch wheel gives."""

from __future__ import annotations

import pytest
import torch

from tests.xnnpack.modules import MODULES, module_case
from tests.xnnpack.zoo import compare, export

# Codes of statically quantized programs are equal; others differ by roundings of f32.
BOUNDS = {None: 2e-6, "dynamic": 2e-6, "int8": 0.0}


@pytest.mark.parametrize("quantize", BOUNDS)
@pytest.mark.parametrize("name", MODULES)
def test_export_gives_the_results_of_the_wheel(name, quantize, tmp_path):
    case = module_case(name)
    with torch.no_grad():
        export(case, quantize, tmp_path / "program.pte")
        assert compare(tmp_path / "program.pte", case) <= BOUNDS[quantize]
