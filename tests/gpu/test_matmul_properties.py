"""Matrix products of any live shape below one bound: every tail, every change of kernel between two calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import webpte
from tests.support.harness.cases import OneOp, T, case, run_case

BOUND = {"b": 3, "m": 19, "n": 23, "k": 37}
A, B = T("m", "k"), T("k", "n")

PRODUCTS = {
    "linear": case(
        "aten.linear.default", T("b", "m", "k"), T("n", "k"), T("n"), **{d: (s, 1) for d, s in BOUND.items()}
    ),
    "linear without bias": case("aten.linear.default", A, T("n", "k"), None, m=(19, 1), n=(23, 1), k=(37, 1)),
    "mm": case("aten.mm.default", A, B, m=(19, 1), n=(23, 1), k=(37, 1)),
    "bmm": case("aten.bmm.default", T("b", "m", "k"), T("b", "k", "n"), **{d: (s, 1) for d, s in BOUND.items()}),
    "addmm with a row": case("aten.addmm.default", T("n"), A, B, 0.5, -2, m=(19, 1), n=(23, 1), k=(37, 1)),
    "addmm with a column": case("aten.addmm.default", T("m", 1), A, B, 3, 1, m=(19, 1), n=(23, 1), k=(37, 1)),
    "addmm with a matrix": case("aten.addmm.default", T("m", "n"), A, B, 1, 1, m=(19, 1), n=(23, 1), k=(37, 1)),
}

live_sizes = st.fixed_dictionaries({dim: st.integers(1, bound) for dim, bound in BOUND.items()})
in_order = settings(
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.fixture
def loaded(request, tmp_path, device):
    one = OneOp(PRODUCTS[request.param])
    one.write(tmp_path / "product.pte")
    with webpte.load(tmp_path / "product.pte") as program:
        yield one, program.method()


@pytest.mark.parametrize("loaded", PRODUCTS, indirect=True)
@in_order
@given(sizes=live_sizes)
def test_matmul_any_live_shape(loaded, sizes):
    one, method = loaded
    one.check(method, {dim: sizes[dim] for dim in one.case.sizes[0]})


@st.composite
def convolutions(draw):
    """Return a convolution of any geometry, with the sizes of its input at the bound and below."""
    axes, transposed, groups = draw(st.integers(1, 3)), draw(st.booleans()), draw(st.integers(1, 3))
    depth, channels = draw(st.integers(1, 5)), draw(st.integers(1, 5))  # of a group

    def per_axis(low, high):
        return draw(st.lists(st.integers(low, high), min_size=axes, max_size=axes))

    kernel, stride, padding, dilation = per_axis(1, 3), per_axis(1, 3), per_axis(0, 2), per_axis(1, 3)
    extra = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
    output_padding = extra if transposed else [0] * axes
    # The smallest input whose output has a pixel.
    reach = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if transposed:
        rows = zip(reach, padding, stride, output_padding, strict=True)
        least = [1 + max(0, -(-(1 + 2 * p - r - o) // s)) for r, p, s, o in rows]
    else:
        least = [max(1, r - 2 * p) for r, p in zip(reach, padding, strict=True)]
    sizes = {f"s{a}": (low + 4, draw(st.integers(low, low + 4))) for a, low in enumerate(least)}
    outer, inner = (depth * groups, channels) if transposed else (channels * groups, depth)
    x = T(draw(st.integers(1, 2)), depth * groups, *sizes, low=-1, high=1)
    weight = T(outer, inner, *kernel, low=-1, high=1, constant=True)
    bias = T(channels * groups) if draw(st.booleans()) else None
    arguments = (stride, padding, dilation, transposed, output_padding, groups)
    return case("aten.convolution.default", x, weight, bias, *arguments, **sizes)


@in_order
@given(one=convolutions())
def test_convolution_any_geometry(one, tmp_path, device):
    run_case(one, tmp_path)


CONTRADICTIONS = {
    "inner sizes differ": (case("aten.mm.default", T("m", "k"), T("l", 5), m=(7,), k=(6, 1), l=(6, 1)), {"k": 5}),
    "batches differ": (case("aten.bmm.default", T("b", 3, 4), T("c", 4, 5), b=(3, 1), c=(3, 1)), {"c": 2}),
    "features differ": (case("aten.linear.default", T(2, "k"), T(5, "l"), None, k=(6, 1), l=(6, 1)), {"l": 4}),
    "bias is too short": (case("aten.linear.default", T(2, 6), T(5, 6), T("n"), n=(5, 1)), {"n": 4}),
    "no broadcast": (case("aten.addmm.default", T("n"), T(2, 6), T(6, 5), 1, 1, n=(5, 1)), {"n": 4}),
    "smaller than the kernel": (
        case("aten.convolution.default", T(1, 2, "n"), T(3, 2, 4), None, [1], [0], [1], False, [0], 1, n=(9, 5)),
        {"n": 3},
    ),
    "channels do not fit": (
        case("aten.convolution.default", T(1, "c", 9), T(3, 2, 4), None, [1], [0], [1], False, [0], 1, c=(2,)),
        {"c": 1},
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_product_of_unequal_live_sizes_is_refused(name, tmp_path, device):
    whole, changed = CONTRADICTIONS[name]
    bound = whole.sizes[0]
    one = OneOp(replace(whole, sizes=(bound, bound | changed)))
    one.write(tmp_path / "product.pte")
    random = np.random.default_rng(0)
    with webpte.load(tmp_path / "product.pte") as program:
        method = program.method()
        with pytest.raises((webpte.InputError, webpte.ShapeError)):  # of one input, or of several that disagree
            method.run([t.array(bound | changed, random) for t in whole.tensors])
        one.check(method, bound)  # a refused call leaves the method as it was
