"""Follow the remedies that errors print, as they are printed."""

from __future__ import annotations

import re

import pytest
import torch

import webpte
from tests.support.harness.cases import assert_close
from webpte.export import lower
from webpte.graph.names import EXIR_OPS
from webpte.lowering import registry


class Shares(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x * 2.0, -1) + torch.exp(x)


@pytest.fixture
def without_softmax(monkeypatch):
    """A webpte that has not heard of an op which the exporter delegates."""
    registry._discover()  # all are there before one is taken out
    monkeypatch.delitem(registry._OPS, "aten._softmax.default")
    monkeypatch.delitem(registry._KERNELS, "aten::_softmax.out")


def refused(path):
    with webpte.load(path) as program, pytest.raises(webpte.UnsupportedError) as caught:
        program.method()
    assert caught.value.items == ("aten._softmax.default",)
    return str(caught.value)


def test_remedy_block_list_yields_running_program(without_softmax, tmp_path):
    module, x = Shares(), torch.linspace(-3, 3, 35).reshape(5, 7)
    lower(module, (x,), path=tmp_path / "refused.pte")
    text = refused(tmp_path / "refused.pte")

    (line,) = re.findall(r"after `(.*)`", text)
    (listed,) = re.findall(r"VulkanPartitioner\(operator_blocklist=(\[.*?\])\)", text)
    names: dict = {}
    exec(line, names)
    lower(module, (x,), path=tmp_path / "kept_out.pte", operator_blocklist=eval(listed, names))
    with webpte.load(tmp_path / "kept_out.pte") as program:
        assert "aten::_softmax.out" in {call.name for call in program.graph("forward").calls}
        assert_close(program.method()(x), module(x).numpy(), 1e-5, 1e-5, "outside the delegate")


def test_blocklist_of_torch_op_objects_has_no_effect(without_softmax, tmp_path):
    """Why the error names the exporter's: if this fails, the shorter text does too."""
    x = torch.linspace(-3, 3, 35)
    lower(Shares(), (x,), path=tmp_path / "m.pte", operator_blocklist=[torch.ops.aten._softmax.default])
    refused(tmp_path / "m.pte")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_remedy_fallback_runs_program(without_softmax, tmp_path):
    module, x, path = Shares(), torch.linspace(-3, 3, 35), tmp_path / "m.pte"
    lower(module, (x,), path=path)
    (call,) = re.findall(r"load\(path, .*?\)", refused(path))
    with eval(call, {"load": webpte.load, "path": path}) as program:
        assert_close(program.method()(x), module(x).numpy(), 1e-5, 1e-5, call)


def test_remedy_separates_ops_without_block_list():
    from webpte.graph import keep_out

    assert keep_out(["et_vk.new.default"]) == (
        "ExecuTorch makes et_vk.new.default inside the delegate: no block list keeps such ops out."
    )
    both = keep_out(["aten.sort.default", "et_vk.new.default"])
    assert "[exir_ops.edge.aten.sort.default]" in both and "inside the delegate" in both and EXIR_OPS in both
