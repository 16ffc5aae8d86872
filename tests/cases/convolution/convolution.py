"""Sizes are prime so that no axis can stand in for another; every spatial size is checked below its bound."""

from tests.support.harness.cases import T, case

CONV, CLAMPED = "aten.convolution.default", "et_vk.conv_with_clamp.default"
HALF = {"atol": 5e-3, "rtol": 5e-3}


def conv(x, weight, bias=None, *, s=(1,), p=(0,), d=(1,), transposed=False, o=(0,), groups=1, clamp=None, **sizes):
    """Return one case. Arguments given for one axis hold for all, but are passed for each, as exporters do."""
    axes = len(weight) - 2
    lists = [list(v) * axes if len(v) == 1 else list(v) for v in (s, p, d, o)]
    stride, padding, dilation, output_padding = lists
    dtype = sizes.pop("dtype", "f32")
    options = {"dtype": dtype, "low": -1, "high": 1}
    tensors = [T(*x, **options), T(*weight, constant=True, **options)]
    bias = T(bias, constant=True, **options) if bias else None
    limits = clamp if clamp is not None else ()
    name = CONV if clamp is None else CLAMPED
    args = (stride, padding, dilation, transposed, output_padding, groups)
    return case(name, *tensors, bias, *args, *limits, **sizes)


ONE_AXIS = [
    conv((2, 3, "l"), (5, 3, 3), 5, l=(13, 7, 3)),
    conv(("b", 3, "l"), (5, 3, 4), s=(2,), p=(3,), d=(2,), b=(3, 1), l=(17, 8, 1)),
    conv((1, 7, "l"), (7, 1, 5), 7, p=(2,), groups=7, l=(19, 5, 1)),  # depthwise
    conv((1, 7, "l"), (7, 1, 4), p=(3,), groups=7, l=(19, 5, 1)),  # causal, as in state-space models
    conv((2, 7, "l"), (5, 7, 1), 5, l=(11, 4, 1)),  # pointwise
    conv((1, 6, "l"), (9, 2, 3), 9, s=(2,), groups=3, l=(11, 4, 3)),
    conv((3, "l"), (5, 3, 3), 5, p=(1,), l=(11, 4, 1)),  # unbatched
    conv((2, 3, "l"), (3, 5, 4), 5, s=(3,), p=(1,), transposed=True, o=(2,), l=(11, 4, 1)),
    conv((2, 6, "l"), (6, 2, 3), d=(2,), transposed=True, groups=3, l=(7, 2)),
]

TWO_AXES = [
    conv((1, 3, "h", "w"), (5, 3, 3, 3), 5, p=(1,), h=(11, 7, 1), w=(13, 5, 2)),
    conv((1, 3, "h", "w"), (5, 3, 3, 3), h=(11, 7, 3), w=(13, 5, 3)),
    conv(("b", 3, "h", "w"), (7, 3, 3, 5), 7, s=(2, 3), p=(0, 4), d=(2, 1), b=(3, 2, 1), h=(13, 8, 5), w=(11, 7, 2)),
    conv((2, 5, "h", "w"), (5, 1, 3, 3), 5, p=(1,), groups=5, h=(7, 4, 1), w=(11, 5, 1)),  # depthwise
    conv((1, 5, "h", 7), (5, 1, 5, 3), s=(2, 1), p=(2, 1), groups=5, h=(11, 6, 1)),
    conv((1, 5, "h", 7), (5, 1, 3, 3), p=(3, 1), d=(3, 1), groups=5, h=(11, 6, 1)),  # apart along y only
    conv((2, 3, "h", "w"), (6, 1, 3, 2), 6, groups=3, h=(7, 4, 3), w=(5, 3)),  # depthwise with a multiplier of 2
    conv((2, 3, "h", "w"), (15, 1, 2, 3), 15, p=(1,), groups=3, h=(7, 4, 2), w=(5, 3)),  # and of 5
    conv((1, 8, "h", "w"), (12, 2, 3, 3), 12, p=(1,), groups=4, h=(7, 4), w=(5, 3)),
    conv((1, 8, "h", "w"), (4, 4, 3, 3), groups=2, d=(2,), h=(9, 6), w=(8, 5)),
    conv(("b", 7, "h", "w"), (5, 7, 1, 1), 5, b=(2, 1), h=(5, 3, 2), w=(7, 4, 1)),  # pointwise
    conv(("b", 8, "h", "w"), (3, 8, 1, 1), b=(3, 2), h=(4, 3, 1), w=(6, 2, 1)),  # also over a single pixel
    conv((2, 7, "h", "w"), (5, 7, 1, 1), 5, s=(2,), h=(5, 3, 2), w=(7, 4, 1)),
    conv((2, 6, "h", "w"), (4, 3, 1, 1), 4, groups=2, h=(5, 3, 2), w=(7, 4, 1)),
    conv((2, 3, "h", "w"), (5, 3, 1, 1), 5, p=(1,), h=(5, 1), w=(3, 2)),
    conv((3, "h", "w"), (5, 3, 3, 3), 5, p=(1,), h=(5, 3), w=(7, 4)),  # unbatched
    conv((7, "h", "w"), (5, 7, 1, 1), 5, h=(5, 3), w=(7, 4)),
    conv(("b", 3, 5, 5), (5, 3, 3, 3), 5, b=(3, 2, 1)),
    conv((1, 61, "h", 7), (67, 61, 3, 3), 67, p=(1,), h=(5, 3), atol=1e-4),
]

TRANSPOSED = [
    conv((1, 3, "h", "w"), (3, 5, 3, 3), 5, transposed=True, h=(5, 3, 1), w=(7, 4, 2)),
    conv(
        ("b", 3, "h", "w"), (3, 5, 3, 2), 5, s=(2, 3), p=(1, 0), o=(1, 2), transposed=True, b=(2, 1), h=(5, 2), w=(7, 3)
    ),
    conv((1, 4, "h", "w"), (4, 3, 2, 2), s=(2,), transposed=True, h=(5, 3, 1), w=(7, 4, 1)),
    conv((2, 6, "h", "w"), (6, 1, 3, 3), 6, s=(2,), p=(1,), o=(1,), transposed=True, groups=6, h=(5, 3), w=(7, 4)),
    conv((2, 6, "h", "w"), (6, 5, 3, 4), 10, s=(3, 1), d=(2, 3), transposed=True, groups=2, h=(5, 1), w=(4, 3)),
    conv((2, 7, "h", "w"), (7, 5, 1, 1), 5, transposed=True, h=(5, 1), w=(7, 3)),
    conv((2, 3, "h", "w"), (3, 5, 2, 2), 5, s=(4,), p=(1,), transposed=True, h=(5, 2), w=(3, 2)),  # pixels without taps
    # An output that ends earlier than the padding says: a convolution of XNNPACK with unequal paddings.
    conv((2, 3, "h", "w"), (3, 5, 3, 3), 5, s=(2,), o=(-1, -2), transposed=True, h=(5, 2), w=(7, 3)),
]

THREE_AXES = [
    conv((2, 3, "d3", "h", 7), (5, 3, 3, 2, 3), 5, s=(1, 2, 1), p=(1, 0, 1), d3=(5, 3, 1), h=(7, 4, 2)),
    conv((1, 4, "d3", 3, 5), (4, 1, 3, 3, 2), p=(1,), groups=4, d3=(5, 2)),
    conv((1, 5, "d3", 3, 5), (7, 5, 1, 1, 1), 7, d3=(5, 2)),
    conv((1, 4, "d3", 3, 2), (4, 3, 2, 3, 2), 3, s=(2, 1, 3), p=(1, 0, 0), o=(1, 0, 2), transposed=True, d3=(5, 2)),
]

SAME = {"p": (1,), "h": (7, 4, 1), "w": (5, 3, 2)}
CLAMPS = [
    conv((1, 3, "h", "w"), (5, 3, 3, 3), 5, clamp=(0.0, 6.0), **SAME),
    conv((1, 3, "h", "w"), (5, 3, 3, 3), 5, clamp=(0, None), **SAME),
    conv((1, 3, "h", "w"), (5, 3, 3, 3), clamp=(None, 0.5), **SAME),
    conv((1, 3, "h", "w"), (5, 3, 3, 3), clamp=(None, None), **SAME),
    conv((1, 3, "h", "w"), (5, 3, 3, 3), clamp=(0.5, -0.5), **SAME),  # the upper limit wins
    conv((2, 5, "h", "w"), (5, 1, 3, 3), 5, groups=5, clamp=(-0.25, 1), **SAME),
    conv((2, 7, "h", "w"), (5, 7, 1, 1), 5, clamp=(0.0, 1.0), h=(5, 3, 1), w=(7, 4, 1)),
    conv((2, 3, "h", "w"), (3, 5, 3, 2), 5, s=(2,), transposed=True, clamp=(-0.1, 0.1), h=(5, 2), w=(7, 3)),
    conv((2, 3, "l"), (5, 3, 3), 5, clamp=(0.0, 6.0), l=(13, 7, 3)),
]

HALVES = [
    conv((2, 3, "h", "w"), (5, 3, 3, 3), 5, dtype="f16", **SAME, **HALF),
    conv((2, 5, "h", "w"), (5, 1, 3, 3), 5, groups=5, dtype="f16", **SAME, **HALF),
    conv((2, 7, "h", "w"), (5, 7, 1, 1), 5, dtype="f16", h=(5, 3, 1), w=(7, 4, 1), **HALF),
    conv((2, 3, "h", "w"), (3, 5, 3, 2), 5, s=(2,), transposed=True, dtype="f16", h=(5, 2), w=(7, 3), **HALF),
    conv((2, 3, "l"), (5, 3, 3), dtype="f16", clamp=(0.0, 1.0), l=(13, 7, 3), **HALF),
]

# One number may stand for all axes.
SHORT = [case(CONV, T(1, 3, "n", 7), T(5, 3, 3, 3), None, [2], [1], [1], False, [0], 1, n=(7, 4))]


def by(variant):
    """Tails of channels, of pixels and of workgroups for one kernel."""
    some = {"variant": variant, "atol": 1e-4}
    return [
        conv((2, 5, "h", "w"), (19, 5, 3, 3), 19, p=(1,), h=(13, 7, 1), w=(11, 5, 2), **some),
        conv((1, 20, "h", "w"), (7, 20, 2, 3), s=(2, 1), d=(1, 2), h=(13, 7), w=(11, 6), **some),
        conv((1, 34, "h", 7), (8, 17, 3, 3), 8, groups=2, clamp=(-0.5, 0.5), h=(9, 4), **some),
        conv((1, 5, "h", "w"), (5, 3, 3, 2), 3, s=(2,), transposed=True, h=(5, 2), w=(7, 3), **some),
        conv((2, 3, "l"), (5, 3, 4), 5, p=(2,), dtype="f16", l=(13, 7, 3), variant=variant, **HALF),
    ]


def depthwise(variant):
    some = {"groups": 5, "variant": variant}
    return [
        conv((2, 5, "h", "w"), (5, 1, 3, 3), 5, p=(1,), h=(7, 4, 1), w=(13, 5, 1), **some),
        conv(
            (1, 5, "h", 11), (5, 1, 5, 3), s=(2, 3), p=(2, 1), d=(2, 3), clamp=(0, None), h=(11, 6), always=True, **some
        ),
        conv((1, 5, "d3", 3, 7), (5, 1, 3, 3, 2), 5, p=(1,), d3=(5, 2), **some),
        conv((1, 5, "l"), (5, 1, 4), p=(3,), dtype="f16", l=(19, 5, 1), **some, **HALF),
    ]


VARIANTS = [c for variant in ("broadcast", "tile", "shared", "lines") for c in (*by(variant), *depthwise(variant))]
VARIANTS += depthwise("depthwise")

CASES = VARIANTS + ONE_AXIS + TWO_AXES + TRANSPOSED + THREE_AXES + CLAMPS + HALVES + SHORT
