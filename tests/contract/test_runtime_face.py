"""`webpte.Runtime` beside `executorch.runtime`: the same names, and the same answers for a program both can run."""

from __future__ import annotations

import inspect
import io

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import ptd_file
from webpte.runtime import executorch as ours

torch = pytest.importorskip("torch")
theirs = pytest.importorskip("executorch.runtime")
PAIRS = [
    (theirs.Runtime, ours.Runtime),
    (theirs.Program, ours.RuntimeProgram),
    (theirs.Method, ours.RuntimeMethod),
    (theirs.BackendRegistry, ours.BackendRegistry),
    (theirs.OperatorRegistry, ours.OperatorRegistry),
]


@pytest.fixture(scope="module")
def portable():
    from executorch.exir import to_edge

    class Scaled(torch.nn.Module):  # type: ignore[name-defined]
        def forward(self, x, factor):
            return x * factor, x + factor

    edge = to_edge(torch.export.export(Scaled(), (torch.ones(2, 3), torch.ones(3))))
    return bytes(edge.to_executorch().buffer)


@pytest.mark.parametrize(("known", "mine"), PAIRS, ids=lambda cls: cls.__name__)
def test_runtime_api_names_and_signatures_equal(known, mine):
    names = [name for name in vars(known) if not name.startswith("_")]
    assert names
    for name in names:
        result = getattr(mine, name, None)
        if result is None:
            assert name in inspect.signature(mine).parameters, f"{mine.__name__} has no {name}"  # set when it is made
        elif inspect.isfunction(result):
            asked = list(inspect.signature(getattr(known, name)).parameters)
            assert list(inspect.signature(result).parameters) == asked


def test_runtime_api_verification_levels_equal():
    assert {level.name for level in webpte.Verification} == set(theirs.Verification.__members__)


def test_runtime_api_results_and_metadata_equal(portable):
    x, factor = torch.arange(6.0).reshape(2, 3), torch.tensor([1.0, 2.0, 3.0])
    known = theirs.Runtime.get().load_program(portable)
    mine = webpte.Runtime.get().load_program(portable, verification=webpte.Verification.Minimal)
    assert mine.method_names == known.method_names == {"forward"}
    for got, want in zip(
        mine.load_method("forward").execute((x, factor)), known.load_method("forward").execute((x, factor)), strict=True
    ):
        assert np.array_equal(got, want)
    metas = (mine.metadata("forward"), known.metadata("forward"), mine.load_method("forward").metadata)
    for meta in metas:
        assert (meta.name(), meta.num_inputs(), meta.num_outputs()) == ("forward", 2, 2)
        for tensor, sizes in ((meta.input_tensor_meta(1), (3,)), (meta.output_tensor_meta(0), (2, 3))):
            assert (tuple(tensor.sizes()), tensor.dtype(), tensor.nbytes()) == (sizes, 6, 4 * int(np.prod(sizes)))
            assert tensor.is_memory_planned() == metas[1].input_tensor_meta(1).is_memory_planned()


def test_runtime_api_array_alone_is_one_input():
    """Not one input for each row, as a sequence would be."""
    from executorch.exir import to_edge

    edge = to_edge(torch.export.export(torch.nn.ReLU(), (torch.ones(2, 3),)))
    method = webpte.Runtime.get().load_program(bytes(edge.to_executorch().buffer)).load_method("forward")
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    for inputs in (x, torch.tensor(x), [x]):
        (y,) = method.execute(inputs)
        assert np.array_equal(y, np.maximum(x, 0))


def test_sources_and_registries(portable, tmp_path):
    runtime = webpte.Runtime.get()
    assert runtime is webpte.Runtime.get()
    (tmp_path / "p.pte").write_bytes(portable)
    for data in (tmp_path / "p.pte", str(tmp_path / "p.pte"), portable, bytearray(portable), io.BytesIO(portable)):
        with runtime.load_program(data)._program as program:
            assert program.method_names == ("forward",)
    ptd_file(tmp_path / "w.ptd", {"w": np.ones(3, np.float32)})
    runtime.load_program(portable, data_path=tmp_path / "w.ptd")._program.close()
    assert runtime.backend_registry.registered_backend_names == ["VulkanBackend", "XnnpackBackend"]
    assert runtime.backend_registry.is_available("VulkanBackend")
    assert runtime.backend_registry.is_available("XnnpackBackend")
    assert not runtime.backend_registry.is_available("CoreMLBackend")
    assert "aten.add.Tensor" in runtime.operator_registry.operator_names
    with raises(webpte.UnsupportedError, "enable_etdump", "webpte profile"):
        runtime.load_program(portable, enable_etdump=True)
