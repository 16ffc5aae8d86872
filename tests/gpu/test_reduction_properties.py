"""Reductions, norms and pools of any shape, over any dims, with any window; and what they say of nothing at all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import webpte
from tests.support.harness.cases import T, case, run_case
from tests.support.harness.errors import raises
from tests.support.harness.writer import simple_pte
from webpte import container as c
from webpte.container import DType

few = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def tensors(draw, dtypes=("f32", "i32"), least_rank=0):
    """Return a tensor some of whose dims are live, and the sizes of those at the bound and below."""
    bound = draw(st.lists(st.integers(1, 6), min_size=least_rank, max_size=5))
    live = {f"d{i}": (size, draw(st.integers(1, size))) for i, size in enumerate(bound) if draw(st.booleans())}
    dims = [f"d{i}" if f"d{i}" in live else size for i, size in enumerate(bound)]
    return T(*dims, dtype=draw(st.sampled_from(dtypes)), low=-5, high=5), live


def any_dim(rank):
    return st.integers(-rank, rank - 1) if rank else st.sampled_from([0, -1])


@st.composite
def reductions(draw):
    """Any set of dims, named from either end and in any order."""
    name = draw(st.sampled_from(["sum.dim_IntList", "mean.dim", "amax.default", "amin.default", "var.correction"]))
    x, sizes = draw(tensors(("f32", "i32") if name[0] in "sa" else ("f32",)))
    rank = len(x.dims)
    axes = draw(st.lists(st.integers(0, rank - 1), unique=True)) if rank else []
    dim = [axis - rank if draw(st.booleans()) else axis for axis in axes]
    keepdim = draw(st.booleans())
    rest = [0, keepdim] if name == "var.correction" else [keepdim] if name[0] == "a" else [keepdim, None]
    return case(f"aten.{name}", x, dim, *rest, **sizes, atol=1e-4)


@st.composite
def along_one_dim(draw):
    name = draw(st.sampled_from(["argmax.default", "argmin.default", "max.dim", "min.dim", "cumsum.default"]))
    x, sizes = draw(tensors())
    dim = draw(any_dim(len(x.dims)))
    if name.startswith("arg") and draw(st.booleans()):
        dim = None
    return case(f"aten.{name}", x, dim, None if name == "cumsum.default" else draw(st.booleans()), **sizes)


@st.composite
def row_norms(draw):
    x, sizes = draw(tensors(("f32",), least_rank=1))
    if draw(st.booleans()):
        name = draw(st.sampled_from(["_softmax", "_log_softmax"]))
        return case(f"aten.{name}.default", x, draw(any_dim(len(x.dims))), False, **sizes)
    split = draw(st.integers(0, len(x.dims) - 1))
    shape = [sizes[d][0] if isinstance(d, str) else d for d in x.dims[split:]]  # what is normalized is never live
    x = T(*x.dims[:split], *shape, low=-5, high=5)
    weight, bias = (T(*shape) if draw(st.booleans()) else None for _ in range(2))
    sizes = {name: values for name, values in sizes.items() if name in x.dims}
    return case("aten.native_layer_norm.default", x, shape, weight, bias, 1e-3, **sizes, atol=1e-4)


@st.composite
def pools(draw):
    """Windows of any geometry that PyTorch allows."""
    average = draw(st.booleans())
    pairs = [[draw(st.integers(1, 4)), draw(st.integers(1, 4))] for _ in range(2)]
    kernel, stride = pairs[0], draw(st.sampled_from([[], pairs[1]]))
    dilation = [1, 1] if average else [draw(st.integers(1, 3)), draw(st.integers(1, 3))]
    reach = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    padding = [draw(st.integers(0, k // 2)) for k in kernel]
    # At least one window fits, and no dilation steps over the whole image.
    least = [max(r - 2 * p, d) for r, p, d in zip(reach, padding, dilation, strict=True)]
    sizes = {name: (low + 5, draw(st.integers(low, low + 5))) for name, low in zip("hw", least, strict=True)}
    x = T(*draw(st.sampled_from([(2,), (2, 3)])), "h", "w")
    if average:
        rest = [draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from([None, 3]))]
        return case("aten.avg_pool2d.default", x, kernel, stride, padding, *rest, **sizes)
    return case(
        "aten.max_pool2d_with_indices.default", x, kernel, stride, padding, dilation, draw(st.booleans()), **sizes
    )


@few
@given(one=reductions())
def test_reduction_any_set_of_dims(one, tmp_path, device):
    run_case(one, tmp_path)


@few
@given(one=along_one_dim())
def test_reduction_any_single_dim(one, tmp_path, device):
    run_case(one, tmp_path)


@few
@given(one=row_norms())
def test_norm_any_rows(one, tmp_path, device):
    run_case(one, tmp_path)


@few
@given(one=pools())
def test_pool_any_window(one, tmp_path, device):
    run_case(one, tmp_path)


# -- no elements, and no numbers --------------------------------------------------------------------------------------


def of_the_tail(path, op: str, *rest: c.VkValue) -> None:
    """A program that drops two rows of x (5, 3) and applies `op` over dim 0 of what is left."""
    values: list[c.VkValue] = [
        *(c.VkTensor(DType.FLOAT32, (5, 3)), c.VkTensor(DType.FLOAT32, (3, 3)), c.VkTensor(DType.FLOAT32, (3,))),
        *(c.VkInt(0), c.VkInt(2), c.VkInt(2**62), c.VkInt(1)),
        *rest,
    ]
    arguments = list(range(7, len(values)))
    calls = [("aten.slice_copy.Tensor", [0, 3, 4, 5, 6, 1]), (op, [1, *arguments, 2])]
    simple_pte(path, values, calls, [0], [2], dynamic=True)


def twos(rows: int) -> np.ndarray:
    return np.full((rows, 3), 2, np.float32)


NO_ELEMENTS = {"aten.sum.dim_IntList": 0.0, "aten.prod.dim_int": 1.0}


@pytest.mark.parametrize("op", NO_ELEMENTS)
def test_reduction_empty_returns_neutral_element(op, tmp_path, device):
    dim: c.VkValue = c.VkInt(0) if op == "aten.prod.dim_int" else c.VkIntList((0,))
    of_the_tail(tmp_path / "tail.pte", op, dim, c.VkBool(False), c.VkNull())
    with webpte.load(tmp_path / "tail.pte") as program:
        method = program.method()
        assert method.run([twos(3)])[0].tolist() == [2.0] * 3
        assert method.run([twos(2)])[0].tolist() == [NO_ELEMENTS[op]] * 3


REFUSED: dict[str, list[c.VkValue]] = {
    "aten.amax.default": [c.VkIntList((0,)), c.VkBool(False)],
    "aten.mean.dim": [c.VkIntList((0,)), c.VkBool(False), c.VkNull()],
    "aten.var.correction": [c.VkIntList((0,)), c.VkInt(0), c.VkBool(False)],
}


@pytest.mark.parametrize("op", REFUSED)
def test_reduction_empty_extreme_and_mean_raise(op, tmp_path, device):
    of_the_tail(tmp_path / "tail.pte", op, *REFUSED[op])
    with webpte.load(tmp_path / "tail.pte") as program:
        method = program.method()
        expected = [0.0] * 3 if "var" in op else [2.0] * 3
        with raises(webpte.ShapeError, op, "[0, 3]"):
            method.run([twos(2)])
        assert method.run([twos(4)])[0].tolist() == expected  # a refused call changes nothing


@pytest.mark.parametrize("op", ["aten.amax.default", "aten.amin.default"])
def test_nan_is_every_extreme(op, tmp_path, device):
    of_the_tail(tmp_path / "tail.pte", op, c.VkIntList((0,)), c.VkBool(False))
    x = twos(5)
    x[2:, 1] = np.nan, 1, 3
    x[4, 2] = -np.nan
    with webpte.load(tmp_path / "tail.pte") as program:
        (out,) = program.method().run([x])
    assert out[0] == 2 and np.isnan(out[1:]).all()
