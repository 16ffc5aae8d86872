import numpy as np

from tests.support.harness.cases import T, case

HALF = {"atol": 2e-3, "rtol": 2e-3}
LOOSE = {"atol": 1e-4}  # sums of hundreds of products


def codes(rows, row_bytes, **options):
    return T(rows, row_bytes, dtype="u8", low=0, high=255, **{"constant": True} | options)


def scales(*dims, **options):
    return T(*dims, low=0.005, high=0.05, **{"constant": True} | options)


def exponents(*dims):
    """Return scales in bytes, 2^-7 to 2^-4."""
    return T(*dims, dtype="u8", low=120, high=123, constant=True)


def bias(size):
    return T(size, constant=True)


def half(spec):
    return T(*spec.dims, dtype="f16", low=spec.low / 2, high=spec.high / 2, constant=spec.constant)


def extreme(dims):
    """Codes of one kind only, where errors add up: all 0, all 15, then mixed."""
    rows = np.arange(dims[0])[:, None] % 3
    mixed = np.arange(dims[0] * dims[1]).reshape(dims) * 37 % 256
    return np.where(rows == 0, 0, np.where(rows == 1, 255, mixed))


def extreme_rows(dims):
    """Rows of zeros, and of numbers of one size and sign, where sums are the largest."""
    return np.repeat(np.array([0.0, 127.9, -1e-20, 3e20])[np.arange(dims[0]) % 4], dims[1]).reshape(dims)


def zeros(dims):
    return np.zeros(dims)


Q4 = "et_vk.linear_q4gsw.default"
GROUPS = [
    # Whole words: a load of four, two or one of them belongs to one group.
    case(Q4, T("n", 64), codes(24, 32), scales(4, 24), 16, None, n=(11, 4, 1)),
    case(Q4, T("n", 64), codes(24, 32), scales(2, 24), 32, None, n=(11, 2, 1)),
    case(Q4, T("n", 128), codes(12, 64), scales(2, 12), 64, None, n=(7, 3, 1)),
    case(Q4, T("n", 256), codes(20, 128), scales(2, 20), 128, bias(20), n=(5, 2, 1)),
    case(Q4, T("n", 512), codes(8, 256), scales(2, 8), 256, None, n=(3, 2, 1), **LOOSE),
    case(Q4, T("n", 512), codes(9, 256), scales(1, 12), 512, None, n=(3, 2, 1), **LOOSE),
    case(Q4, T("n", 48), codes(8, 24), scales(6, 8), 8, None, n=(5, 1)),
    case(Q4, T("n", 48), codes(8, 24), scales(2, 8), 24, None, n=(5, 1)),
    case(Q4, T("n", 80), codes(8, 40), scales(2, 8), 40, None, n=(5, 1)),
    case(Q4, T("n", 96), codes(8, 48), scales(2, 8), 48, bias(8), n=(5, 1)),
]
TAILS = [
    # Outputs that are not multiple of 4 or 8; scales and bias are padded to one of 4, or not.
    case(Q4, T("n", 64), codes(29, 32), scales(2, 32), 32, bias(32), n=(11, 4, 1)),
    case(Q4, T("n", 64), codes(29, 32), scales(2, 29), 32, bias(29), n=(11, 4, 1)),
    case(Q4, T("n", 64), codes(29, 32), scales(2, 31), 32, None, n=(11, 4, 1)),
    case(Q4, T("n", 32), codes(1, 16), scales(1, 4), 32, bias(4), n=(7, 1)),
    case(Q4, T("n", 32), codes(2, 16), scales(1, 2), 32, None, n=(7, 1)),
    case(Q4, T("n", 32), codes(7, 16), scales(2, 8), 16, None, n=(3, 2, 1)),
    case(Q4, T("n", 32), codes(67, 16), scales(2, 68), 16, bias(68), n=(67, 31, 1)),
    # Inputs that are not multiple of 8: rows of the weight are padded with the code of zero, or with anything.
    case(Q4, T("n", 12), codes(13, 8), scales(3, 16), 4, bias(16), n=(7, 4, 1)),
    case(Q4, T("n", 20), codes(5, 12), scales(1, 8), 20, None, n=(7, 4, 1)),
    case(Q4, T("n", 36), codes(6, 20), scales(3, 8), 12, None, n=(7, 4, 1)),
    case(Q4, T("n", 16), codes(6, 16), scales(1, 8), 16, None, n=(7, 1)),
    # What the exporter does not write: odd sizes, rows of any number of bytes, a last group that is shorter.
    case(Q4, T("n", 7), codes(5, 4), scales(1, 5), 7, bias(5), n=(5, 2)),
    case(Q4, T("n", 10), codes(5, 5), scales(2, 5), 5, None, n=(5, 2)),
    case(Q4, T("n", 41), codes(3, 21), scales(3, 3), 16, bias(3), n=(5, 1)),
    case(Q4, T("n", 40), codes(3, 20), scales(2, 4), 32, None, n=(5, 1)),
]
RANKS = [
    case(Q4, T(64), codes(24, 32), scales(2, 24), 32, bias(24)),
    case(Q4, T(1, "n", 64), codes(24, 32), scales(2, 24), 32, None, n=(13, 8, 1)),
    case(Q4, T(2, "n", 3, 32), codes(5, 16), scales(1, 8), 32, bias(8), n=(3, 2, 1)),
    case(Q4, T(1, 1, 1, 32), codes(12, 16), scales(1, 12), 32, None),
    # A weight that another op has made.
    case(Q4, T("n", 32), codes(8, 16, constant=False), scales(1, 8, constant=False), 32, T(8), n=(5, 3, 1)),
]
VALUES = [
    case(Q4, T("n", 64), codes(9, 32, make=extreme), scales(2, 12), 32, None, n=(5, 1)),
    case(Q4, T("n", 64, low=50, high=60), codes(9, 32, make=extreme), scales(2, 12), 32, None, n=(5, 1), rtol=5e-5),
    case(Q4, T("n", 64), codes(8, 32), scales(2, 8, make=zeros), 32, bias(8), n=(5, 1)),
    case(Q4, T("n", 64, make=zeros), codes(8, 32), scales(2, 8), 32, bias(8), n=(5, 1)),
    case(Q4, T("n", 1024), codes(36, 512), scales(32, 36), 32, None, n=(19, 1), atol=2e-4),
]


def in_halves(dims):
    """Return scales that f16 has: GPUs store them so."""
    return np.random.default_rng(6).uniform(0.005, 0.05, dims).astype(np.float16)


HALVES = [
    case(Q4, T("n", 64), codes(24, 32), scales(2, 24, make=in_halves), 32, None, n=(11, 4, 1)),
    case(Q4, T("n", 48), codes(7, 24), scales(3, 8, make=in_halves), 16, bias(8), n=(5, 1)),
    case(Q4, half(T("n", 64)), codes(24, 32), half(scales(2, 24)), 32, half(bias(24)), n=(11, 4, 1), **HALF),
    case(Q4, half(T("n", 64)), codes(29, 32), scales(2, 32), 32, None, n=(5, 1), **HALF),
    case(Q4, T("n", 48), codes(7, 24), half(scales(3, 8)), 16, None, n=(5, 1)),
    case(Q4, T("n", 64), codes(29, 32), exponents(2, 29), 32, bias(29), n=(11, 4, 1)),
    case(Q4, half(T("n", 12)), codes(5, 8), half(scales(1, 8)), 12, half(bias(8)), n=(5, 1), **HALF),
]

QCS = "et_vk.linear_qcs4w.default"
CHANNELS = [
    case(QCS, T("n", 32), codes(16, 16), scales(16), n=(7, 4, 1)),
    case(QCS, T("n", 64), codes(13, 32), scales(13), n=(7, 2, 1)),
    case(QCS, T("n", 24), codes(9, 12), scales(9), n=(5, 1)),
    case(QCS, T("n", 40), codes(9, 20), scales(12), n=(5, 1)),
    case(QCS, T("n", 12), codes(9, 6), scales(9), n=(5, 1)),
    case(QCS, T("n", 7), codes(9, 4), scales(9), n=(5, 1)),
    case(QCS, T("n", 34), codes(5, 17), scales(5), n=(5, 3, 1)),
    case(QCS, T(2, "n", 16), codes(5, 8, make=extreme), scales(5), n=(5, 1)),
    case(QCS, half(T("n", 32)), codes(16, 16), half(scales(16)), n=(7, 1), **HALF),
    case(QCS, half(T("n", 10)), codes(3, 5), half(scales(3)), n=(7, 1), **HALF),
]

DQ8 = "et_vk.linear_dq8ca_q4gsw.default"


def sums(groups, columns):
    return T(groups, columns, dtype="i32", low=-99, high=99, constant=True)


def rounded(*dims, zero=(-128, 127)):
    """Return the scale and the zero point of each row; some values of x are beyond what they can stand for."""
    return T(*dims, low=0.004, high=0.02), T(*dims, dtype="i8", low=zero[0], high=zero[1])


DYNAMIC = [
    case(DQ8, T("n", 64), *rounded("n"), codes(24, 32), sums(2, 24), scales(2, 24), 32, None, n=(31, 4, 1)),
    case(DQ8, T(1, "n", 64), *rounded(1, "n"), codes(24, 32), sums(2, 24), scales(2, 24), 32, None, n=(31, 5, 1)),
    case(DQ8, T("n", 64), *rounded("n"), codes(9, 32), sums(4, 16), scales(4, 12), 16, bias(12), n=(7, 3, 2, 1)),
    case(DQ8, T("n", 128), *rounded("n"), codes(8, 64), sums(1, 8), scales(1, 8), 128, bias(8), n=(6, 5, 1)),
    case(DQ8, T(2, "n", 32), *rounded(2, "n"), codes(8, 16), sums(1, 8), scales(1, 8), 32, None, n=(6, 5, 1)),
    case(DQ8, T("n", 12), *rounded("n"), codes(5, 8), sums(3, 8), scales(3, 8), 4, bias(8), n=(6, 3, 1)),
    case(DQ8, T("n", 32), *rounded("n", zero=(0, 0)), codes(5, 16), sums(1, 8), scales(1, 8), 32, None, n=(6, 1)),
    case(DQ8, T("n", 32, make=zeros), *rounded("n"), codes(5, 16), sums(1, 8), scales(1, 8), 32, None, n=(6, 1)),
    case(
        DQ8, half(T("n", 32)), *rounded("n"), codes(5, 16), sums(1, 8), half(scales(1, 8)), 32, None, n=(6, 1), **HALF
    ),
]

FUSED = "webpte.linear_q4"


def int8(*dims, **options):
    return T(*dims, dtype="i8", low=-128, high=127, **{"constant": True} | options)


def packed(columns, inner, group, format):
    """Codes and scales of a weight."""
    if format == "int8":
        return int8(columns, inner), scales(columns)
    if format == "mxfp4":
        return codes(columns, inner // 2), exponents(inner // group, columns)
    return codes(columns, inner // 2), scales(inner // group, columns)


def normalized(x):
    """Return the weight and the epsilon of a norm; large enough to make a difference."""
    return T(x.dims[-1], constant=True, dtype=x.dtype), 1e-2


def offsets(groups, columns, weights=1):
    """Return a signed byte for each group and column of every weight, and a scale for each column."""

    def offset_values(dims):
        codes = np.arange(weights * groups * columns) * 37 % 256
        factors = 0.001 + np.arange(weights * columns) % 5 * 0.0005
        return np.concatenate([codes.astype(np.uint8).view(np.int8), factors.astype("<f4").view(np.int8)])

    return T(weights * columns * (groups + 4), dtype="i8", constant=True, make=offset_values)


ACTIVATIONS = {  # of one product
    None: (),
    "gelu": ("aten.gelu.default x0 'none'",),
    "gelu_tanh": ("aten.gelu.default x0 'tanh'",),
    "silu": ("aten.silu.default x0",),
    "tanh": ("aten.tanh.default x0",),
}
GATES = {  # of two
    "gelu_tanh": ("aten.gelu.default x0 'tanh'", "aten.mul.Tensor v0 x1"),
    "silu": ("aten.sigmoid.default x0", "aten.mul.Tensor x0 v0", "aten.mul.Tensor v1 x1"),
    "tanh": ("aten.tanh.default x0", "aten.mul.Tensor v0 x1"),
}


def epilogue(x, steps, products, residual):
    """Return the last arguments of a call: the program, what it adds, no numbers and no other shape."""
    if residual is not None:
        steps = (*steps, f"aten.add.Tensor {f'v{len(steps) - 1}' if steps else 'x0'} x{products} 1")
    if not steps:
        return None, None, None, None
    text = "\n".join([*(f"{x.dtype} {step}" for step in steps), f"= v{len(steps) - 1}"])
    return text, [] if residual is None else [residual], [], None


def joined(
    x,
    columns,
    group=32,
    *,
    row=None,
    biased=False,
    residual=None,
    format="int4",
    normed=False,
    offset=False,
    row_eps=None,
    activation=None,
    **options,
):
    """Return one weight whose columns are split among outputs."""
    inner, total = x.dims[-1], sum(columns)
    weight = [[part] for part in packed(total, inner, group, format)]
    added = bias(total) if biased else None, format, *(normalized(x) if normed else (None, None))
    more = offsets(-(-inner // group), total) if offset else None
    program = epilogue(x, ACTIVATIONS[activation], 1, residual)
    return case(
        FUSED, x, *(row or (None, None)), *weight, group, list(columns), *added, more, row_eps, *program, **options
    )


def gated(
    x,
    columns,
    group=32,
    *,
    row=None,
    residual=None,
    format="int4",
    normed=False,
    offset=False,
    row_eps=None,
    activation="silu",
    **options,
):
    """Two weights."""
    weights = [[part] * 2 for part in packed(columns, x.dims[-1], group, format)]
    added = None, format, *(normalized(x) if normed else (None, None))
    added += (offsets(-(-x.dims[-1] // group), columns, 2) if offset else None, row_eps)
    added += epilogue(x, GATES[activation], 2, residual)
    return case(FUSED, x, *(row or (None, None)), *weights, group, [columns], *added, **options)


AROUND = [
    joined(T("n", 64), (12, 4, 8), n=(19, 3, 1)),
    joined(T("n", 64), (13, 7), n=(19, 3, 1)),
    joined(T("n", 64), (5, 3, 2), biased=True, n=(19, 3, 1)),
    joined(T(1, "n", 96), (8, 4, 4), group=48, n=(11, 2, 1)),
    joined(T("n", 12), (5, 3, 2), group=4, biased=True, n=(7, 1)),
    joined(T("n", 64), (20,), residual=T("n", 20), n=(19, 3, 1)),
    joined(T("n", 64), (13,), biased=True, residual=T("n", 13), n=(19, 3, 1)),
    joined(T("n", 12), (5,), group=4, residual=T("n", 5), n=(7, 1)),
    joined(T("n", 64), (12, 4, 8), row=rounded("n"), n=(19, 3, 1)),
    joined(T("n", 64), (13,), row=rounded("n"), biased=True, residual=T("n", 13), n=(19, 3, 1)),
    gated(T("n", 64), 20, n=(19, 3, 1)),
    gated(T("n", 64), 13, n=(19, 3, 1)),
    gated(T("n", 64, low=-60, high=60), 13, n=(19, 3, 1), atol=1e-3),  # gates that are almost shut
    gated(T("n", 12), 5, group=4, n=(7, 1)),
    gated(T("n", 64), 20, row=rounded("n"), n=(19, 3, 1)),
    gated(T("n", 64), 13, residual=T("n", 13), n=(19, 3, 1)),
    gated(T("n", 64), 20, activation="gelu_tanh", n=(19, 3, 1)),
    gated(T("n", 64, low=-60, high=60), 13, activation="gelu_tanh", n=(19, 3, 1), atol=1e-3),
    gated(T("n", 12), 5, group=4, activation="gelu_tanh", normed=True, n=(7, 1)),
    gated(T("n", 64), 20, row=rounded("n"), activation="gelu_tanh", n=(19, 3, 1)),
    gated(T("n", 64), 13, activation="tanh", residual=T(13), n=(19, 3, 1)),
    joined(T("n", 64), (20,), activation="gelu", n=(19, 3, 1)),
    joined(T("n", 12), (5,), group=4, activation="silu", biased=True, residual=T("n", 5), n=(7, 1)),
    joined(T(2, "n", 64), (13,), activation="gelu_tanh", residual=T(2, "n", 13), normed=True, n=(19, 3, 1)),
    joined(T("n", 34), (5,), group=34, format="int4_high_first", activation="tanh", residual=T("n", 5), n=(5, 3, 1)),
    joined(T("n", 48), (13,), group=48, format="int8", activation="gelu", residual=T("n", 13), n=(19, 3, 1), **LOOSE),
    joined(T("n", 64), (12,), row=rounded("n"), activation="gelu_tanh", n=(19, 3, 1)),
    joined(T("n", 64), (12,), offset=True, activation="silu", residual=T("n", 12), n=(19, 3, 1)),
    gated(T("n", 48, low=-0.1, high=0.1), 13, group=48, format="int8", activation="tanh", n=(19, 3, 1), **LOOSE),
    gated(half(T("n", 64)), 13, activation="gelu_tanh", residual=half(T("n", 13)), n=(7, 1), atol=2e-2, rtol=5e-3),
    joined(T("n", 64), (12, 4, 8), normed=True, n=(19, 3, 1)),
    joined(T("n", 12), (5,), group=4, normed=True, residual=T("n", 5), n=(7, 1)),
    gated(T("n", 64), 13, normed=True, n=(19, 3, 1)),
    joined(T("n", 36), (5, 3), group=12, offset=True, n=(7, 1)),
    joined(T("n", 64), (12,), row=rounded("n"), offset=True, n=(19, 3, 1)),
    gated(T("n", 12), 4, group=4, offset=True, normed=True, n=(7, 1)),
]


def one_sided(dims):
    """Rows of zeros, above 0, below 0, far below the smallest scale, and of both signs."""
    x = np.random.default_rng(5).uniform(-2, 2, dims)
    kinds = [np.zeros_like(x), np.abs(x), -np.abs(x), x * 1e-9, x]
    return np.stack([kinds[row % 5][row] for row in range(dims[0])])


EPS = 2.0**-23
# After a norm, a number may be rounded to the neighbor of the reference's: one term of a sum differs by a step.
NORMED_ROWS = {"normed": True, "atol": 0.05, "row_eps": EPS}
ROWS = [
    joined(T("n", 64, make=one_sided), (12, 4, 8), row_eps=EPS, n=(19, 3, 1)),
    joined(T("n", 29, make=one_sided), (7,), group=29, format="int8", row_eps=EPS, n=(19, 3, 1), **LOOSE),
    joined(T(1, "n", 12), (5,), group=4, biased=True, residual=T(1, "n", 5), row_eps=EPS, n=(7, 1)),
    joined(T(2, "n", 96), (13,), row_eps=0.5, n=(3, 1), **LOOSE),  # a scale of at least 0.5 leaves few codes
    joined(half(T("n", 64)), (13,), row_eps=EPS, n=(7, 1), **HALF),
    joined(T("n", 48), (33,), group=48, format="int8", row_eps=EPS, biased=True, n=(19, 3, 1), **LOOSE),
    joined(T("n", 64), (12,), row_eps=EPS, offset=True, n=(19, 3, 1)),
    gated(T("n", 64), 13, row_eps=EPS, n=(19, 3, 1)),
    joined(T("n", 64), (12, 4, 8), n=(19, 3, 1), **NORMED_ROWS),
    joined(T("n", 29), (5,), group=29, format="int8", n=(7, 1), **NORMED_ROWS),
    joined(half(T("n", 64)), (13,), n=(7, 1), **NORMED_ROWS),
    joined(half(T("n", 7)), (5,), group=7, format="int8", n=(7, 1), **NORMED_ROWS),
    gated(T("n", 576), 13, residual=T("n", 13), n=(19, 1), **NORMED_ROWS),
    *(
        joined(T("n", inner, make=one_sided), (7,), row_eps=EPS, variant=lanes, n=(11, 2, 1), **LOOSE)
        for lanes in ("alone", "by 8", "by 64")
        for inner in (32, 1184)
    ),
    *(joined(T("n", 608), (7,), variant=lanes, n=(11, 1), **NORMED_ROWS) for lanes in ("alone", "by 8", "by 64")),
    *(
        joined(T("n", 1184, make=one_sided), (7, 6), row_eps=EPS, variant=packed, n=(67, 9, 1), **LOOSE)
        for packed in ("packed", "packed-32", "packed-64")
    ),
    gated(T("n", 608), 7, variant="packed", n=(11, 1), **NORMED_ROWS),
    *(joined(T("n", k), (5,), group=k, row_eps=EPS, variant="packed", n=(3, 1), **LOOSE) for k in (8, 24)),
    joined(T("n", 24), (5,), group=24, row=rounded("n"), variant="packed", n=(3, 1)),
]


def by(variant, row_qparams=False):
    """What a kernel has to do: tails, groups of one and of several loads, channels, biases, outputs and gates."""
    row = {"row": rounded("n")} if row_qparams else {}
    some = {"n": (67, 9, 1), "variant": variant}
    alone = [
        case(Q4, T("n", 64), codes(29, 32), scales(2, 32), 32, bias(32), **some),
        case(Q4, T("n", 48), codes(35, 24), scales(6, 35), 8, None, **some),
        case(Q4, T("n", 2112), codes(5, 1056), scales(11, 5), 192, None, atol=5e-4, **some),
        case(Q4, half(T("n", 64)), codes(29, 32), half(scales(2, 32)), 32, half(bias(29)), **HALF, **some),
        case(QCS, T("n", 64), codes(13, 32), scales(13), **some),
    ]
    either = [
        joined(T("n", 64), (33, 7, 5), **row, **some),
        joined(T("n", 64), (37,), biased=True, residual=T("n", 37), **row, **some),
        joined(T("n", 96), (37,), group=32 if variant.startswith("packed-") else 16, **row, **some),
        joined(T("n", 2112), (5,), group=192, atol=1e-3, **row, **some),
        gated(T("n", 64), 37, **row, **some),
    ]
    if not row_qparams:
        either += [
            joined(T("n", 96), (33, 7, 5), normed=True, biased=True, **some),
            joined(half(T("n", 64)), (13,), normed=True, **HALF, **some),
            gated(T("n", 2112), 5, group=192, normed=True, residual=T("n", 5), atol=1e-3, **some),
            joined(T("n", 224), (33, 7, 4), offset=True, **some),
            joined(T("n", 64), (36,), group=64, biased=True, residual=T("n", 36), offset=True, **some),
            joined(half(T("n", 96)), (12,), group=16, offset=True, **HALF, **some),
            gated(T("n", 608), 28, normed=True, offset=True, atol=1e-3, **some),
        ]
    return either if row_qparams else alone + either


def by_halves(variant):
    """Return what a kernel with operands in f16 has to do. Errors grow with the root of K."""

    def some(inner, size=1.0, **options):
        return {"n": (67, 17, 9, 1), "variant": variant, "atol": 7e-3 * size * (inner / 64) ** 0.5} | options

    wide, huge = {"low": -1e4, "high": 1e4}, {"low": -1e30, "high": 1e30}
    return [
        case(Q4, T("n", 64), codes(29, 32), scales(2, 32), 32, bias(32), **some(64)),
        case(Q4, T("n", 48, **wide), codes(35, 24), scales(3, 35), 16, None, **some(48, 5e3)),
        case(Q4, T("n", 48, **huge), codes(67, 24), scales(3, 67), 16, None, **some(48, 5e29)),
        case(Q4, T("n", 64, make=extreme_rows), codes(67, 32, make=extreme), scales(2, 68), 32, None, **some(64, 1e21)),
        case(Q4, half(T("n", 64)), codes(29, 32), half(scales(2, 32)), 32, half(bias(29)), **some(64)),
        case(QCS, T("n", 64), codes(13, 32), scales(13), **some(64)),
        joined(T("n", 2112), (33, 7, 5), group=192, **some(2112)),
        joined(T("n", 96), (37,), biased=True, residual=T("n", 37), group=16, **some(96)),
        joined(T("n", 96), (33, 7, 5), normed=True, biased=True, **some(96)),
        joined(half(T("n", 64)), (13,), normed=True, **some(64)),
        gated(T("n", 64), 37, activation="gelu_tanh", **some(64, 4.0, rtol=4e-3)),
        gated(T("n", 2112), 5, group=192, normed=True, residual=T("n", 5), **some(2112, 8.0, rtol=4e-3)),
        joined(T("n", 224), (33, 7, 4), offset=True, **some(224)),
        joined(T("n", 64), (36,), group=64, biased=True, residual=T("n", 36), offset=True, **some(64, 2.0)),
        gated(T("n", 608), 28, normed=True, offset=True, **some(608, 8.0, rtol=4e-3)),
    ]


LANES = ("lanes", "lanes-halves", "lanes-bytes")
VARIANTS = [c for variant in ("broadcast", "tile", *LANES, "shared", "shared-64", "shared-wide") for c in by(variant)]
VARIANTS += [c for variant in ("packed", "packed-32", "packed-64") for c in by(variant, row_qparams=True)]
VARIANTS += [c for variant in ("shared-f16", "shared-64-f16", "shared-wide-f16") for c in by_halves(variant)]
# Tiles have as many rows as there are, up to 16; then as few tiles as can be have them evenly.
COUNTS = {"n": (35, 17, 16, 12, 7, 5, 4, 2), "variant": "broadcast"}
VARIANTS += [
    case(Q4, T("n", 96), codes(29, 48), scales(3, 32), 32, bias(32), **COUNTS),
    gated(T("n", 96), 13, group=16, **COUNTS),
]

INT8 = "aten._weight_int8pack_mm.default"


def lowest(dims):
    return np.full(dims, -128)


WHOLE = [
    case(INT8, T("n", 32), int8(16, 32), scales(16), n=(7, 4, 1), **LOOSE),
    case(INT8, T("n", 12), int8(13, 12), scales(13), n=(7, 5, 1), **LOOSE),
    case(INT8, T("n", 29), int8(11, 29), scales(11), n=(7, 5, 1), **LOOSE),
    case(INT8, T("n", 7), int8(1, 7), scales(4), n=(3, 2, 1)),
    case(INT8, T(2, "n", 8), int8(5, 8), scales(5), n=(3, 2, 1)),
    case(INT8, T(8), int8(5, 8, make=lowest), scales(5)),
    case(INT8, T("n", "k"), int8(6, "k", constant=False), scales(6), n=(5, 4, 1), k=(16, 7, 4), **LOOSE),
    case(INT8, T("n", 256), int8(18, 256), scales(18), n=(67, 3), atol=1e-3),
    case(INT8, half(T("n", 12)), int8(5, 12), half(scales(5)), n=(7, 1), **HALF),
    case(INT8, half(T("n", 5)), int8(3, 5), half(scales(3)), n=(7, 1), **HALF),
]
for variant in ("broadcast", "tile", "lanes", "shared", "shared-64", "shared-wide"):
    some = {"n": (67, 9, 1), "variant": variant}
    WHOLE += [  # loads of four, two and one words, steps of K that are not full, extremes
        case(INT8, T("n", 80), int8(29, 80), scales(32), **some, **LOOSE),
        case(INT8, T("n", 40), int8(37, 40), scales(37), **some, **LOOSE),
        case(INT8, T("n", 28), int8(5, 28, make=lowest), scales(5), **some, **LOOSE),
        case(INT8, half(T("n", 36)), int8(13, 36), half(scales(13)), **some, **HALF),
        joined(T("n", 48), (33, 7, 5), group=48, biased=True, format="int8", **some, **LOOSE),
        gated(T("n", 48, low=-0.1, high=0.1), 37, group=48, residual=T("n", 37), format="int8", **some, **LOOSE),
    ]
WHOLE += [
    case(INT8, T("n", 96), int8(29, 96), scales(29), **COUNTS, **LOOSE),
    joined(T("n", 29), (8,), group=29, residual=T("n", 8), format="int8", n=(7, 1), **LOOSE),
    joined(T("n", 48), (33,), group=48, row=rounded("n"), biased=True, format="int8", n=(19, 3, 1), **LOOSE),
    joined(T("n", 29), (8,), group=29, row=rounded("n"), format="int8", n=(7, 1), **LOOSE),
    gated(T("n", 29, low=-0.1, high=0.1), 5, group=29, format="int8", n=(7, 1), **LOOSE),
]

MXFP4 = {"format": "mxfp4"}
MICROSCALED = [
    joined(T("n", 64), (29,), biased=True, n=(19, 3, 1), **MXFP4),
    joined(T("n", 96), (33, 7, 5), normed=True, n=(19, 1), **MXFP4),
    joined(T("n", 36), (13,), group=12, activation="silu", n=(7, 1), **MXFP4),  # groups that do not begin at words
    gated(T("n", 64), 20, residual=T("n", 20), n=(19, 3, 1), **MXFP4),
    joined(T("n", 64, make=one_sided), (12,), row_eps=EPS, n=(7, 1), **MXFP4),
    joined(half(T("n", 64)), (13,), n=(7, 1), **MXFP4, **HALF),
    *(
        layer
        for variant in ("broadcast", "tile", "lanes", "shared", "shared-64", "shared-wide")
        for layer in (
            joined(T("n", 224), (33, 7, 4), n=(67, 9, 1), variant=variant, **MXFP4, **LOOSE),
            gated(T("n", 64), 37, normed=True, n=(67, 9, 1), variant=variant, **MXFP4, **LOOSE),
        )
    ),
    *(
        joined(T("n", 96), (37,), n=(67, 9, 1), variant=variant, atol=2e-2, **MXFP4)
        for variant in ("shared-f16", "shared-64-f16", "shared-wide-f16")
    ),
]

CASES = GROUPS + TAILS + RANKS + VALUES + HALVES + CHANNELS + DYNAMIC + AROUND + ROWS + VARIANTS + WHOLE + MICROSCALED
