"""A file names the kernels it calls: only pure ones are looked up, and none takes memory its outputs do not have."""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.support.harness.errors import raises
from tests.support.harness.writer import ALONE, Method, pte_file
from webpte import container as c
from webpte.container import DType
from webpte.errors import Error, GraphError, RangeError
from webpte.graph import Bool, Call, Graph, Int, IntList, Null, Origin, String, TensorSpec, Value, ValueList
from webpte.runtime.kernels import CpuKernels
from webpte.runtime.torch_kernels import PURE
from webpte.wgsl import Caps

torch = pytest.importorskip("torch")

F32 = DType.FLOAT32
REFUSED = [
    "aten::from_file.out",
    "aten.from_file.default",
    "aten::empty_like.out",
    "aten::_empty_affine_quantized.out",
    "aten::resize_",
    "aten::resize.out",
    "aten::set.source_Tensor_out",
    "aten::as_strided_copy_unchecked.out",
    "aten::_unsafe_index.Tensor_out",
    "aten::max_pool2d_with_indices_backward.grad_input",
    "aten::rand.out",
    "aten::randn.out",
    "aten::bernoulli.out",
    "aten::native_dropout.out",
    "aten::repeat_interleave.Tensor_out",
    "aten::relu_",
    "aten.add_.Tensor",
    "aten::exp_",
    "inductor::_reinterpret_tensor",
    "prims::empty_strided",
    "profiler::_record_function_enter_new",
    "mkldnn::_linear_pointwise",
    "aten::abs.__class__",
    "aten::abs.__call__",
    "aten::__class__",
    "aten::",
    "::",
    "",
    ".",
]


def run(name, values, args, outs=(0,), tensors=None):
    graph = Graph("forward", tuple(values), (), (), ())
    call = Call(name, tuple(args), tuple(outs), Origin(0), kernel="::" in name)
    return CpuKernels().run(call, graph, tensors or {}, {})


@pytest.mark.parametrize("name", REFUSED)
def test_pure_kernels_exclude_impure_ops(name):
    assert name not in CpuKernels()


def test_pure_kernels_names_are_torch_ops():
    assert [name for name in sorted(PURE) if not hasattr(torch.ops.aten, name)] == []


@pytest.mark.parametrize("name", ["aten::linalg_det.out", "aten::cummax.out", "aten::atan2.out", "aten.lgamma.default"])
def test_pure_kernels_are_listed(name):
    assert name in CpuKernels()


def test_pure_kernel_runs():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    values = [TensorSpec(F32, (2, 3), F32), TensorSpec(F32, (2, 3), F32)]
    (result,) = run("aten::lgamma.out", values, [1], tensors={1: x + 1}).values()
    np.testing.assert_allclose(result, torch.lgamma(torch.from_numpy(x + 1)).numpy())


HUGE: dict[str, list[Value]] = {
    "aten::linspace.out": [Int(0), Int(1), Int(10**13)],
    "aten::full.out": [IntList((10**13,)), Int(1)],
    "aten::eye.m_out": [Int(10**7), Int(10**7)],
}


@pytest.mark.parametrize("name", HUGE)
def test_pure_kernel_result_beyond_bound_refused_before_allocation(name):
    values = [TensorSpec(F32, (4,), F32), *HUGE[name]]
    with raises(Error, 10**7, "[4]", code="exceeds_bound"):
        run(name, values, range(1, len(values)))


def test_pure_kernel_outer_product_refused_before_allocation():
    values = [TensorSpec(F32, (4, 4), F32), TensorSpec(F32, (1 << 20, 1), F32), TensorSpec(F32, (1, 1 << 20), F32)]
    arrays = {1: np.ones((1 << 20, 1), np.float32), 2: np.ones((1, 1 << 20), np.float32)}
    with raises(Error, "[1048576, 1048576]", "[4, 4]", code="exceeds_bound"):
        run("aten::mm.out", values, [1, 2], tensors=arrays)
    with raises(Error, "aten::atan2.out", "[1048576, 1048576]", "[4, 4]", code="exceeds_bound"):
        run("aten::atan2.out", values, [1, 2], tensors=arrays)


def test_strings_and_devices_never_reach_torch():
    values = [TensorSpec(F32, (4,), F32), TensorSpec(F32, (4,), F32), String("meta"), Null(), Int(6)]
    x = {1: np.zeros(4, np.float32)}
    for args in ([1, 2], [1, 4, 3, 2]):
        with raises(GraphError, "aten::_to_copy.default", "'meta'", code="wrong_kind"):
            run("aten::_to_copy.default", values, args, tensors=x)


def test_pure_kernel_empty_returns_zeros():
    """Memory of the process must not show through: `empty` is ours, and torch's is never called."""
    values = [TensorSpec(F32, (3,), F32), IntList((3,)), Null()]
    (got,) = run("aten::empty.out", values, [1, 2]).values()
    assert got.tolist() == [0, 0, 0] and CpuKernels().source("aten::empty.out") == "numpy"


def test_pure_kernel_accepts_string_argument():
    values = [
        TensorSpec(F32, (3,), F32),
        TensorSpec(F32, (3,), F32),
        Int(0),
        TensorSpec(DType.INT32, (4,), DType.INT64),
        TensorSpec(F32, (4,), F32),
        String("amax"),
        Bool(True),
    ]
    arrays = {1: np.zeros(3, np.float32), 3: np.array([0, 0, 2, 2]), 4: np.array([1, 5, 2, -3], np.float32)}
    (got,) = run("aten::scatter_reduce.two_out", values, [1, 2, 3, 4, 5, 6], tensors=arrays).values()
    assert got.tolist() == [5, 0, 2]


def test_pure_kernels_accept_none_in_index_lists():
    """x[:, i] is index.Tensor of [None, i]; index_put adds up what comes twice."""
    values = [
        TensorSpec(F32, (2, 3), F32),
        TensorSpec(F32, (2, 3), F32),
        Null(),
        TensorSpec(DType.INT32, (2,), DType.INT64),
        ValueList((2, 3)),
        TensorSpec(F32, (2, 2), F32),
        Bool(True),
    ]
    arrays = {1: np.zeros((2, 3), np.float32), 3: np.array([1, 1]), 5: np.array([[1, 2], [3, 4]], np.float32)}
    (got,) = run("aten::index_put.out", values, [1, 4, 5, 6], tensors=arrays).values()
    assert got.tolist() == [[0, 3, 0], [0, 7, 0]]


@pytest.mark.parametrize("name", ["aten::index_select.out", "aten::take.out"])
@pytest.mark.parametrize("index", [4, -5, 2**40, -(2**40)])
def test_indices_out_of_range_are_typed_errors(name, index):
    values = [
        TensorSpec(F32, (1,), F32),
        TensorSpec(F32, (4,), F32),
        Int(0),
        TensorSpec(DType.INT32, (1,), DType.INT64),
    ]
    args = [1, 2, 3] if "select" in name else [1, 3]
    with raises(RangeError, name, code="position"):
        run(name, values, args, tensors={1: np.zeros(4, np.float32), 3: np.array([index])})


def test_too_many_arguments_are_refused():
    values = [TensorSpec(F32, (4,), F32), TensorSpec(F32, (4,), F32)]
    with raises(GraphError, "aten::lgamma.out", "at most 1 ", "got 3", code="wrong_arity"):
        run("aten::lgamma.out", values, [1, 1, 1], tensors={1: np.zeros(4, np.float32)})


def test_pure_kernels_file_access_is_impossible(tmp_path, monkeypatch):
    """`from_file` with shared=True creates what it is asked to; at a few hundred bytes of program, of any size."""
    monkeypatch.chdir(tmp_path)
    tensor = c.TensorValue(F32, (8,), (0,), place=ALONE)
    values = [c.StringValue("made"), c.BoolValue(True), c.IntValue(1 << 20), tensor]
    call = c.KernelCall("aten::from_file.out", (0, 1, 2, 3, 3))
    pte_file("p.pte", [Method("forward", values, [], [3], [call])])
    with webpte.load("p.pte") as program, raises(webpte.UnsupportedError, "aten::from_file.out", code="no_cpu_kernel"):
        program.plan("forward", Caps())
    assert [path.name for path in tmp_path.iterdir()] == ["p.pte"]
