"""Every node type of XNNPACK delegates against NumPy, in f32 and f16."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.studies.xnnpack.coded_nets import coded_net
from tests.studies.xnnpack.nets import NETS
from webpte.container.xnnpack import NODE_FIELDS

BOUNDS = {"f4": 3e-6, "f2": 4e-3}  # absolute, and relative


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", NETS)
def test_xnnpack_nodes_equal_numpy(name, dtype, device):
    net = NETS[name](dtype)
    with webpte.load(net.program()) as program:
        results = program.method("forward").run(net.inputs)
    types = [node.type for node in net.nodes]
    for number, (result, expected) in enumerate(zip(results, net.expected, strict=True)):
        where = f"output {number} of {types}"
        assert result.shape == expected.shape, where
        bound = BOUNDS[dtype]
        np.testing.assert_allclose(result.astype(float), expected.astype(float), bound, bound, err_msg=where)


def test_xnnpack_node_types_have_cases():
    tested = {node.type for net in NETS.values() for node in net("f4").nodes}
    assert tested == {name for name, _ in NODE_FIELDS.values()}


def test_nodes_on_codes_give_the_codes_of_integer_arithmetic(device):
    net = coded_net()
    with webpte.load(net.program()) as program:
        results = program.method("forward").run(net.inputs)
    for node, result, expected in zip(net.nodes, results, net.expected, strict=True):
        assert result.dtype == np.int8, node.type
        np.testing.assert_array_equal(result, expected, err_msg=node.type)
