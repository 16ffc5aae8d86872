"""Products and convolutions that end in an elementwise program, as the pass writes them; x0 is their result."""

from tests.support.harness.cases import T, case

ADDED = "f32 aten.add.Tensor x0 x1 1\n= v0"
GELU = "f32 aten.gelu.default x0 'none'\n= v0"
SCALED = "f32 aten.mul.Tensor x0 n0\nf32 aten.add.Tensor v0 x1 n1\nf32 aten.relu.default v1\n= v2"
SILU = "f32 aten.sigmoid.default x0\nf32 aten.mul.Tensor x0 v0"
GATED = SILU + "\nf32 aten.mul.Tensor v1 x1\nf32 aten.add.Tensor v2 x2 1\n= v3"
CLAMPED = "f32 aten.clamp.default x0 n0 n1\nf32 aten.mul.Tensor v0 x1\n= v1"
ABOVE = "f32 aten.clamp.default x0 n0 -\n= v0"
POSITIVE = "bool aten.gt.Scalar x0 n0\n= v0"
HALVED = "f16 aten.mul.Scalar x0 n0\nf16 aten.add.Tensor v0 x1 1\n= v1"
HALF = {"atol": 5e-3, "rtol": 5e-3}
PLAIN = "bhmk,bhkn->bhmn"
LINEAR, MATMUL, CONVOLUTION = "webpte.linear", "webpte.matmul", "webpte.convolution"


def h(*dims):
    return T(*dims, dtype="f16", low=-1, high=1)


WEIGHT, BIAS = T(21, 12, constant=True), T(21, constant=True)
LINEARS = [
    case(LINEAR, T("n", 12), WEIGHT, None, GELU, [], [], None, n=(19, 5, 1)),
    case(LINEAR, T("n", 12), WEIGHT, BIAS, ADDED, [T("n", 21)], [], None, n=(19, 5, 1)),
    case(LINEAR, T("n", 12), WEIGHT, BIAS, ADDED, [T(21)], [], None, n=(19, 5, 1)),
    case(LINEAR, T("n", 12), WEIGHT, BIAS, ADDED, [T()], [], None, n=(19, 5, 1)),
    case(LINEAR, T("n", 12), WEIGHT, None, SCALED, [T("n", 21)], [0.5, 2], None, n=(19, 5, 1)),
    case(LINEAR, T(2, "n", 12), WEIGHT, BIAS, GATED, [T(2, "n", 21), T(1, 21)], [], None, n=(7, 1)),
    case(LINEAR, T("n", 12), WEIGHT, BIAS, ADDED, [T(1, "n", 21)], [], T(1, "n", 21), n=(19, 5, 1)),  # past a view
    case(LINEAR, T("n", 12), WEIGHT, BIAS, ADDED, [T("n", 3, 7)], [], T("n", 3, 7), n=(19, 5, 1)),
    case(LINEAR, T("n", 12), WEIGHT, None, POSITIVE, [], [0.25], None, n=(7, 1)),
    case(LINEAR, T("n", 12), WEIGHT, None, ADDED, [h("n", 21)], [], None, n=(7, 1)),
    case(LINEAR, h("n", 12), h(21, 12), h(21), HALVED, [h("n", 21)], [0.5], None, n=(7, 1), **HALF),
]
PRODUCTS = [
    case(MATMUL, PLAIN, None, T("n", 8), T(8, 21), 1.0, 1.0, GELU, [], [], None, n=(19, 5, 1)),
    case(MATMUL, PLAIN, BIAS, T("n", 8), T(8, 21), 2.0, 0.5, ADDED, [T("n", 1)], [], None, n=(19, 5, 1)),
    case(
        MATMUL, PLAIN, None, T(3, "n", 8), T(3, 8, "m"), 1.0, 1.0, ADDED, [T("n", "m")], [], None, n=(19, 1), m=(12, 5)
    ),
    case(
        MATMUL, PLAIN, None, T(3, "n", 8), T(3, 8, 5), 1.0, 1.0, SCALED, [T(1, 1, "n", 5)], [0.5, 1], None, n=(19, 5, 1)
    ),
    case(MATMUL, PLAIN, None, T(3, "n", 8), T(3, 8, 5), 1.0, 1.0, SCALED, [T(3, 1, 1)], [0.5, 1], None, n=(19, 5, 1)),
    case(
        MATMUL, PLAIN, T(3, 1, 5), T(3, "n", 8), T(3, 8, 5), 1.0, 2.0, GATED, [T(3, "n", 5), T(5)], [], None, n=(7, 1)
    ),
    case(MATMUL, PLAIN, None, h(3, "n", 8), h(3, 8, 5), 1.0, 1.0, HALVED, [h("n", 5)], [0.5], None, n=(7, 1), **HALF),
]


def conv(x, weight, program, tensors, numbers, *, padding=1, stride=1, groups=1, **options):
    axes = len(weight) - 2
    lists = [[n] * axes for n in (stride, padding, 1)]
    tensors = [T(*dims) for dims in tensors]
    args = (T(*x), T(*weight), T(weight[0]), *lists, False, [0] * axes, groups)
    return case(CONVOLUTION, *args, program, tensors, numbers, None, atol=1e-4, **options)


IMAGE, SIZES = (2, 6, "h", 7), {"h": (9, 5, 2)}
CONVOLUTIONS = [
    conv(IMAGE, (9, 6, 3, 3), GELU, [], [], **SIZES),
    conv(IMAGE, (9, 6, 3, 3), SCALED, [(2, 9, "h", 7)], [0.5, 1], **SIZES),
    conv(IMAGE, (9, 6, 3, 3), CLAMPED, [(9, 1, 1)], [0, 1.5], **SIZES),
    conv(IMAGE, (9, 6, 1, 1), ABOVE, [], [0.5], padding=0, **SIZES),
    conv(IMAGE, (6, 1, 3, 3), GATED, [(2, 6, "h", 7), (1, 6, 1, 1)], [], groups=6, **SIZES),
    conv(IMAGE, (9, 6, 1, 1), GATED, [(2, 9, "h", 7), ()], [], padding=0, **SIZES),  # a product
    conv(("b", 6, 1, 1), (9, 6, 1, 1), GATED, [("b", 9, 1, 1), (9, 1, 1)], [], padding=0, b=(3, 1)),  # and another
    conv((6, "h", 7), (9, 6, 3, 3), ADDED, [(9, "h", 7)], [], **SIZES),
    conv((1, 6, "h"), (9, 6, 3), ADDED, [(9, 1)], [], **SIZES),
    *(conv(IMAGE, (9, 6, 3, 3), ADDED, [(2, 9, "h", 7)], [], variant=v, **SIZES) for v in ("tile", "shared", "lines")),
]
VARIANTS = [
    entry
    for variant in ("broadcast", "tile", "lanes", "shared", "shared-64", "shared-wide")
    for entry in (
        case(LINEAR, T("n", 36), T(45, 36), T(45), GATED, [T("n", 45), T(45)], [], None, n=(35, 5, 1), variant=variant),
        case(LINEAR, T("n", 36), T(45, 36), None, SCALED, [T("n", 45)], [3, 1], None, n=(35, 1), variant=variant),
    )
]

CASES = LINEARS + PRODUCTS + CONVOLUTIONS + VARIANTS
