"""Fresh exports of XnnpackPartitioner give what the executorch wheel gives."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.xnnpack.coded_nets import coded_net
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


def test_codes_by_numpy_are_those_of_the_wheel():
    """tests/gpu/test_xnnpack_nodes.py compares webpte with the same codes."""
    from executorch.extension.pybindings import portable_lib

    net = coded_net()
    wheel = portable_lib._load_for_executorch_from_buffer(net.program())
    for node, result, expected in zip(
        net.nodes, wheel.forward([torch.from_numpy(codes) for codes in net.inputs]), net.expected, strict=True
    ):
        np.testing.assert_array_equal(result.numpy(), expected, err_msg=node.type)
