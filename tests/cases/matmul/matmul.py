import numpy as np

from tests.support.harness.cases import T, case

# Half precision accumulates in f32; only the stored result is rounded.
HALF = {"atol": 2e-3, "rtol": 2e-3}


def h(*dims, **options):
    return T(*dims, dtype="f16", low=-1, high=1, **options)


def nan(dims):
    return np.full(dims, np.nan, np.float32)


LINEAR = [
    case("aten.linear.default", T("n", 29), T(11, 29, constant=True), None, n=(7, 5, 1)),
    case("aten.linear.default", T("n", 12), T(13, 12, constant=True), T(13, constant=True), n=(7, 4, 1)),
    case("aten.linear.default", T(2, "n", 12), T(5, 12, constant=True), None, n=(7, 4, 1)),
    case("aten.linear.default", T("n", 8), T(4, 8), T(4), n=(5, 2)),
    case("aten.linear.default", T(7), T(5, 7, constant=True), T(5, constant=True)),
    case("aten.linear.default", T("n"), T(6, "n"), None, n=(12, 7, 1)),
    case("aten.linear.default", T(2, "b", 1, 3, "n"), T(7, "n"), T(7), b=(3, 2), n=(13, 8, 3)),
    case("aten.linear.default", T("n", 5), T("o", 5), T("o"), n=(6, 5, 2), o=(9, 1, 4)),
    case("aten.linear.default", T(2, 0, constant=True), T(3, 0, constant=True), T(3)),
    case("aten.linear.default", T("n", 301), T(17, 301, constant=True), None, n=(67, 31, 1), atol=1e-4),
    case("aten.linear.default", h("n", 29), h(11, 29, constant=True), h(11, constant=True), n=(7, 5, 1), **HALF),
    case("aten.linear.default", h(2, "n", 12), h(5, 12, constant=True), None, n=(7, 1), **HALF),
]

PRODUCTS = [
    case("aten.mm.default", T("n", 7), T(7, 5), n=(11, 3, 1)),
    case("aten.mm.default", T("n", "k"), T("k", "m"), n=(13, 4, 1), k=(11, 8, 1), m=(12, 7, 4)),
    case("aten.mm.default", T(5, 0, constant=True), T(0, 8, constant=True)),
    case("aten.mm.default", T("n", 31), T(31, 0, constant=True), n=(5, 1)),
    case("aten.mm.default", T("n", 257), T(257, 29, constant=True), n=(67, 2), atol=1e-4),
    case("aten.mm.default", h("n", 13), h(13, "m"), n=(11, 3, 1), m=(7, 4, 3), **HALF),
    case("aten.bmm.default", T(3, "n", 7), T(3, 7, "m"), n=(11, 3), m=(5, 2)),
    case("aten.bmm.default", T("b", 5, "n"), T("b", "n", 3), n=(11, 3), b=(2, 1)),
    case("aten.bmm.default", T("b", "n", 8), T("b", 8, "n"), n=(12, 5, 1), b=(7, 3, 1)),
    case("aten.bmm.default", h(3, "n", 8), h(3, 8, "m"), n=(11, 1), m=(8, 5), **HALF),
]

SUMS = [
    case("aten.addmm.default", T("m"), T("n", 7), T(7, "m"), 1, 1, n=(11, 3, 1), m=(5, 4, 1)),
    case("aten.addmm.default", T("n", "m"), T("n", 7), T(7, "m"), 0.5, -2.0, n=(11, 3, 1), m=(5, 4, 3)),
    case("aten.addmm.default", T("n", 1), T("n", 5), T(5, 13), 3, 1, n=(11, 3, 1)),
    case("aten.addmm.default", T(1, 12), T("n", 5), T(5, 12), 1, 2, n=(11, 3, 1)),
    case("aten.addmm.default", T(), T("n", 5), T(5, 3), 1, 1, n=(5, 2)),
    case("aten.addmm.default", T(1), T("n", 5), T(5, 3), 1, 1.5, n=(5, 2)),
    case("aten.addmm.default", T(6, make=nan), T("n", 5), T(5, 6), 0, 1, n=(5, 2)),
    case("aten.addmm.default", T(6), T(5, 0, constant=True), T(0, 6, constant=True), 2, 1),
    case("aten.addmm.default", T(8, constant=True), T("n", 12), T(12, 8, constant=True), 1, 1, n=(7, 1)),
    case("aten.addmm.default", h("m"), h("n", 7), h(7, "m"), 1, 1, n=(11, 3, 1), m=(5, 4, 1), **HALF),
    case("aten.baddbmm.default", T("b", "n", 5), T("b", "n", 7), T("b", 7, 5), 1, 0.25, b=(3, 2), n=(11, 3, 1)),
    case("aten.baddbmm.default", T("b", 1, 1), T("b", "n", 7), T("b", 7, 4), -1, 1, b=(3, 2), n=(11, 3, 1)),
    case("aten.baddbmm.default", T(1, "n", 4), T("b", "n", 7), T("b", 7, 4), 2, 1, b=(3, 1), n=(5, 3)),
    case("aten.baddbmm.default", T(5), T("b", "n", 7), T("b", 7, 5), 0.5, 1, b=(3, 1), n=(5, 3)),
]


def by(variant):
    """Return every kind of size for one kernel: one row, a few and many, whole vectors or not, several workgroups."""
    rows = {"n": (67, 33, 9, 5, 3, 1), "variant": variant, "atol": 1e-4}
    return [
        case("aten.linear.default", T("n", 60), T(45, 60, constant=True), T(45, constant=True), **rows),
        case("aten.linear.default", T("n", 61), T(70, 61, constant=True), None, **rows),
        case("aten.linear.default", h("n", 36), h(37, 36, constant=True), h(37), n=(19, 1), variant=variant, **HALF),
        case("aten.linear.default", T("n", "k"), T(9, "k"), None, n=(19, 2, 1), k=(41, 8, 1), variant=variant),
    ]


def by_columns(variant):
    """The same where rows of the right operand are rows of K."""
    rows = {"n": (67, 33, 9, 5, 3, 1), "variant": variant, "atol": 1e-4}
    return [
        case("aten.addmm.default", T(44), T("n", 60), T(60, 44, constant=True), 0.5, -2, **rows),
        case("aten.mm.default", T("n", 61), T(61, 139, constant=True), **rows),
        case("aten.bmm.default", T(3, "n", "k"), T(3, "k", 12), n=(35, 4, 1), k=(17, 8, 1), variant=variant),
        case("aten.bmm.default", h(3, "n", 8), h(3, 8, "m"), n=(19, 1), m=(36, 5), variant=variant, **HALF),
    ]


VARIANTS = [c for variant in ("broadcast", "tile", "lanes", "shared", "shared-64", "shared-wide") for c in by(variant)]
VARIANTS += [c for variant in ("broadcast", "tile", "shared", "shared-64", "shared-wide") for c in by_columns(variant)]


def laid_out(axes, mat1, mat2, **options):
    """Operands in other orders than (batch, row, column), as a pass leaves them when it drops transposes."""
    return case("webpte.matmul", axes, None, mat1, mat2, 1.0, 1.0, None, [], [], None, **options)


SCORES, VALUES = "bmhk,bnhk->bhmn", "bhmk,bkhn->bmhn"
LAYOUTS = [
    laid_out("bhmk,bhkn->bhmn", T(6, "n", 8), T(6, 8, 5), n=(7, 1)),
    laid_out(VALUES, T(2, 3, "n", 9), T(2, 9, 3, 8), n=(19, 5, 1)),
    laid_out(VALUES, T(6, "n", "k"), T(2, "k", 3, 7), n=(19, 5, 1), k=(9, 4, 1)),  # the scores of all heads together
    laid_out("bhmk,bhkn->bmhn", T(2, 3, "n", 8), T(2, 3, 8, 5), n=(7, 1)),
    laid_out("bhmk,bhnk->bhmn", T(2, 3, "n", 8), T(2, 3, 5, 8), n=(7, 1)),
    laid_out("bmhk,bhkn->bhmn", T("b", 4, 3, "k"), T("b", 3, "k", 7), k=(12, 5, 1), b=(2, 1)),
    laid_out(SCORES, h(2, "n", 3, 8), h(2, 5, 3, 8), n=(7, 1), **HALF),
]
LAYOUTS += [
    entry
    for variant in ("broadcast", "tile", "shared", "shared-64", "shared-wide")
    for entry in (
        laid_out(SCORES, T(2, "n", 3, 8), T(2, "m", 3, 8), n=(37, 9, 1), m=(41, 4, 1), variant=variant),
        laid_out(SCORES, T(2, "n", 3, 7), T(2, 11, 3, 7), n=(19, 5, 1), variant=variant),
        laid_out(VALUES, T(2, 3, "n", "k"), T(2, "k", 3, 12), n=(37, 9, 1), k=(20, 9, 1), variant=variant),
    )
]
LAYOUTS += [laid_out(SCORES, T(2, "n", 3, 8), T(2, 70, 3, 8), n=(9, 1), variant="lanes")]

CASES = LINEAR + PRODUCTS + SUMS + VARIANTS + LAYOUTS
