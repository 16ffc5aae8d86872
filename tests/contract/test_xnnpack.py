"""Fresh exports of XnnpackPartitioner give what the executorch wheel gives."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import webpte
from tests.studies.xnnpack.coded_nets import CodedNet, coded_net
from tests.studies.xnnpack.exporting import export
from tests.studies.xnnpack.modules import MODULES, module_case
from tests.studies.xnnpack.nets import NETS, Net
from tests.studies.xnnpack.programs import MIXED, PROGRAMS, run
from tests.studies.xnnpack.zoo import compare
from tests.studies.zoo.building import case
from tests.support.harness.errors import raises
from tests.support.harness.gate import slow_rows_but

# Codes of statically quantized modules are equal; others differ by roundings of f32.
SMALL = {"f32": 2e-6, "dynamic": 2e-6, "int8": 0.0}
KEPT = [("layers", "dynamic"), ("growing", "f32"), ("layers", "int8")]  # exports of convolutions take ten seconds
QUICK = (
    "arithmetic-add", "arithmetic-f16", "dscnn-f32", "gated-8da4w", "gated-dynamic", "gated-mul", "mlp-int8",
    "mlp-linear",
)  # fmt: skip


@pytest.mark.parametrize(("name", "mode"), slow_rows_but(KEPT, itertools.product(MODULES, SMALL)))
def test_export_gives_the_results_of_the_wheel(name, mode, tmp_path):
    example = module_case(name)
    with torch.no_grad():
        export(example, mode, tmp_path / "program.pte")
        assert compare(tmp_path / "program.pte", example) <= SMALL[mode]


class Adapted(torch.nn.Module):
    """A linear layer with a low-rank adapter (LoRA)."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.down, self.up = (torch.nn.Linear(*dims) for dims in ((12, 20), (12, 4), (4, 20)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.base(x) + self.up(self.down(x)))


@pytest.mark.parametrize(
    ("option", "dtype", "bound"),
    [("force_non_static_weights_for_f32_linear", torch.float32, 2e-6), ("enable_bf16", torch.bfloat16, 4e-3)],
)
def test_option_of_the_partitioner_gives_the_results_of_the_wheel(option, dtype, bound, tmp_path):
    """Weights as arguments of the delegate; bf16, within one unit of the largest value."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    torch.manual_seed(0)
    example = case(Adapted().to(dtype), [(torch.randn(5, 12).to(dtype),)])
    with torch.no_grad():
        exported = torch.export.export(example.module, example.steps[0])
        lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner(**{option: True})])
        (tmp_path / "program.pte").write_bytes(lowered.to_executorch().buffer)
        assert compare(tmp_path / "program.pte", example) <= bound


@pytest.mark.slow
def test_adapters_in_data_files_give_the_results_of_merged_weights(tmp_path):
    """As ExecuTorch's export of Llama writes them: a program for each adapter, and one file of the other weights."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower
    from executorch.exir.passes.external_constants_pass import delegate_external_constants_pass_unlifted

    torch.manual_seed(0)
    net, x = Adapted(), torch.randn(5, 12)
    foundations, results = [], []
    for name in ("poet", "clerk"):
        folder = tmp_path / name
        folder.mkdir()
        net.down.reset_parameters()
        net.up.reset_parameters()
        with torch.no_grad():
            graph = torch.export.export(net, (x,)).module()
            tags = {node: "foundation" if "base" in node.name else "lora" for node in graph.graph.nodes}
            delegate_external_constants_pass_unlifted(graph, tags.get)
            lowered = to_edge_transform_and_lower(torch.export.export(graph, (x,)), partitioner=[XnnpackPartitioner()])
            weight = net.base.weight + net.up.weight @ net.down.weight
            bias = net.base.bias + net.up.weight @ net.down.bias + net.up.bias
            merged = torch.relu(torch.nn.functional.linear(x, weight, bias)).numpy()
        program = lowered.to_executorch()
        program.write_tensor_data_to_file(str(folder))
        (folder / "model.pte").write_bytes(program.buffer)
        foundations.append((folder / "foundation.ptd").read_bytes())
        data = [tmp_path / "poet" / "foundation.ptd", folder / "lora.ptd"]
        with webpte.load(folder / "model.pte", data=data) as loaded:
            results.append(loaded.method()(x.numpy()))
        np.testing.assert_allclose(results[-1], merged, rtol=0, atol=1e-5 * abs(merged).max())
    assert foundations[0] == foundations[1] and abs(results[0] - results[1]).max() > 0.1
    of_another = [tmp_path / "poet" / file for file in ("foundation.ptd", "lora.ptd")]
    with raises(webpte.DataError, code="missing_constant"):
        webpte.load(tmp_path / "clerk" / "model.pte", data=of_another)


@pytest.mark.parametrize("name", QUICK)
def test_architecture_gives_the_results_of_the_wheel(name):
    """`python -m tests.studies xnnpack.programs` runs all of them."""
    program = next(program for program in PROGRAMS if str(program) == name)
    outcome = run(program)
    assert outcome.is_right, outcome
    if program.mode in MIXED:
        assert outcome.is_one_submit_of_both, outcome


def _by_wheel(net: CodedNet | Net) -> list[np.ndarray]:
    from executorch.extension.pybindings import portable_lib

    data = net.program()  # the wheel reads it as long as the program exists
    program = portable_lib._load_for_executorch_from_buffer(data)
    return [out.numpy().copy() for out in program.forward([torch.from_numpy(x) for x in net.inputs])]


def test_codes_by_numpy_equal_wheel():
    """tests/gpu/test_xnnpack_nodes.py compares webpte with the same codes."""
    net = coded_net()
    for node, result, expected in zip(net.nodes, _by_wheel(net), net.expected, strict=True):
        np.testing.assert_array_equal(result, expected, err_msg=node.type)


@pytest.mark.parametrize("name", ["convolutions", "images", "products"])
def test_numbers_by_numpy_equal_wheel(name):
    """tests/gpu/test_xnnpack_nodes.py compares webpte with the same numbers, also of nodes that no exporter writes."""
    net = NETS[name]("f4")
    for number, (result, expected) in enumerate(zip(_by_wheel(net), net.expected, strict=True)):
        np.testing.assert_allclose(result, expected, 3e-6, 3e-6, err_msg=f"output {number}")
