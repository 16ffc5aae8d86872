"""Joined elementwise calls: their programs are written out here, as the pass writes them."""

import numpy as np

from tests.cases.elementwise.unary import INFINITE, among
from tests.support.harness.cases import T, case

HALF = {"dtype": "f16"}
BOOL = {"dtype": "bool"}
FEW = {"dtype": "i32", "low": -9, "high": 9}
NAN = float("nan")
ODD = T(7, make=among(INFINITE, -INFINITE, 1, -0.0, 1e-40, -3, 2))


def program(steps, *tensors, numbers=(), out=None, **options):
    """Return a case; steps are separated by semicolons. Without `out`, the last one's result is written."""
    lines = steps.split("; ")
    outputs = out or f"v{len(lines) - 1}"
    return case("webpte.elementwise", "\n".join([*lines, f"= {outputs}"]), list(tensors), list(numbers), **options)


SCALED = "f32 aten.mul.Scalar x0 n0; f32 aten.add.Tensor v0 x1 n1; f32 aten.gelu.default v1 'tanh'"
GATE = "f32 aten.sigmoid.default x0; f32 aten.mul.Tensor x0 v0; f32 aten.mul.Tensor v1 x1"
LONG = "; ".join(
    ["f32 aten.add.Tensor x0 x1 n0", *(f"f32 aten.sub.Scalar v{i} n{2 * i + 1} n{2 * i + 2}" for i in range(20))]
)
FLOATS = [
    program(SCALED, T("n", 29), T("n", 29), numbers=[0.5, 1], n=(11, 7, 1)),
    program(SCALED, T("n", 29), T(29), numbers=[0.5, 2.5], n=(11, 7, 1)),
    program(SCALED, T("n", 8), T(8), numbers=[-0.5, 1.0], n=(11, 7, 1)),  # four neighbors at once
    program(SCALED, T("n", 8), T("n", 1), numbers=[-0.5, 1.0], n=(11, 7, 1)),
    program(SCALED, T("n", 6), T("n", 1), numbers=[-0.5, 1.0], n=(11, 7, 1)),
    program(SCALED, T("n", 5), T(), numbers=[-0.5, 1.0], n=(11, 7, 1)),  # a single element for all
    program(SCALED, T(3, "n", 4), T(3, 1, 4), numbers=[3, 1], n=(7, 2)),
    program(SCALED, T(2, 1, 3, 1, "n", 2), T(5, 1, 3, 1, 2), numbers=[3, 1], n=(7, 2)),  # six dims
    program(GATE, T("n", 5), T("n", 5), n=(11, 7, 1)),
    program(GATE, T("n", 5), T("n", 5), out="v2 v1", n=(11, 7, 1)),  # two outputs
    program(LONG, T("n", 5), T(5), numbers=[1, *([0.25, 2] * 20)], n=(11, 7, 1), atol=1e-4),
    program("f32 aten.mul.Tensor x0 x0; f32 aten.rsqrt.default v0", T("n", 3, low=1), n=(7, 2)),
    program("f32 aten.div.Tensor_mode x0 n0 'floor'; f32 aten.neg.default v0", T(7), numbers=[0.75]),
]

MASKED = "bool aten.gt.Scalar x0 n0; bool aten.logical_and.default v0 x1; f32 aten.where.self v1 x0 x2"
COUNTED = "i32 aten.add.Tensor x0 x1 n0; bool aten.le.Tensor v0 x1; f32 webpte.copy v1; f32 aten.mul.Tensor v2 x2"
TRUTHS = "bool aten.add.Tensor x0 x1 n0; bool aten.bitwise_not.default v0; i32 aten.sub.Tensor v1 x2 n1"
BOUNDED = "i32 aten.clamp.default x0 n0 -; i32 aten.neg.default v0"
HALVES = "f16 aten.add.Tensor x0 x1 n0; f16 aten.mul.Scalar v0 n1; f32 webpte.copy v1; f32 aten.sub.Tensor v2 x2 n2"
OTHERS = [
    program(MASKED, T("n", 5), T("n", 5, **BOOL), T(5), numbers=[0.25], n=(7, 2, 1)),
    program(COUNTED, T("n", 5, **FEW), T(5, **FEW), T("n", 1), numbers=[3], n=(7, 2, 1)),
    program(TRUTHS, T(7, **BOOL), T(7, **BOOL), T(7, **FEW), numbers=[1, 2], atol=0),
    program(BOUNDED, T("n", **FEW), numbers=[-3], n=(7, 2)),
    program(
        *(HALVES, T("n", 5, **HALF), T(5, **HALF), T("n", 5)),
        **{"numbers": [1, 3, 1], "n": (7, 2, 1), "atol": 1e-2, "rtol": 1e-2},
    ),
    # Between the steps a value is what its dtype holds: 2049 is not a f16, nor is 1e5, and any true value is 1.
    program("f16 webpte.copy x0; f32 webpte.copy v0", T(3, make=among(2049, -1e5, 0.1)), atol=0, rtol=0),
    program("bool webpte.copy x0; f32 webpte.copy v0", T(3, make=among(5, 0, -0.5)), atol=0),
    program("i32 webpte.copy x0; f32 webpte.copy v0", T(4, make=among(5.9, -5.9, 0.5, -0.5)), atol=0),
]

REPLACED = "bool aten.ne.Tensor x0 x0; f32 aten.where.self v0 x1 x0"
ADDED = "f32 aten.neg.default x0; f32 aten.add.Tensor v0 x1 n0"
EDGES = [
    program("f32 aten.relu.default x0; f32 aten.minimum.default v0 x1", ODD, T(7), atol=0),
    program("f32 aten.clamp.default x0 - n0; f32 aten.exp.default v0", ODD, numbers=[1.5]),
    # NaN is distinguished from all else and replaced.
    program(
        "bool aten.ne.Tensor x0 x0; f32 aten.where.self v0 x1 x0", T(3, make=among(NAN, 1, INFINITE)), T(3), atol=0
    ),
    program("f32 aten.neg.default x0; f32 aten.abs.default v0", T(70001), atol=0),
    program(ADDED, T(0, 3, constant=True), T(3), numbers=[1]),
    program(ADDED, T(1), T("n", make=np.ones), numbers=[1], n=(5, 1)),
]

CASES = FLOATS + OTHERS + EDGES
