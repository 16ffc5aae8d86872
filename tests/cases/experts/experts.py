"""Mixtures of experts: rows choose a few of the matrices of a stack."""

from typing import Any

from tests.cases.q4.linear_q4 import LOOSE, exponents, scales
from tests.support.harness.cases import Case, T, case


def stack(experts: int, rows: int, columns: int, group: int, form: str) -> tuple[T, T | None]:
    """Return the weights of experts and their scales: in f32 without a group."""
    if not group:
        return T(experts, rows, columns, constant=True, low=-0.5, high=0.5), None
    packed = T(experts, rows, columns // 2, dtype="u8", low=0, high=255, constant=True)
    return packed, (exponents if form == "mxfp4" else scales)(experts, rows, columns // group)


def mixture(sizes: tuple[int, int, int, int], group: int = 32, **more: Any) -> Case:
    """`sizes`: experts, those chosen, the width of a row and of an expert."""
    experts, chosen, width, hidden = sizes
    rows, form = more.pop("rows", ("n",)), more.pop("format", "int4")
    bias = T(experts, constant=True) if more.pop("biased", False) else None
    gate, up, down = (
        stack(experts, *shape, group, form) for shape in ((hidden, width), (hidden, width), (width, hidden))
    )
    scoring, normalized = more.pop("scoring", "softmax"), more.pop("normalized", True)
    numbers = (group, group, chosen, scoring, normalized, more.pop("eps", 0.0), more.pop("factor", 1.0))
    activation = more.pop("activation", "silu")
    added = more.pop("biases", False)
    biases = [T(*dims, constant=True) if added else None for dims in ((experts, 2, hidden), (experts, width))]
    x, logits = T(*rows, width), T(*rows, experts)
    return case(
        "webpte.experts", x, logits, bias, *gate, *up, *down, *numbers, activation, form, *biases, **LOOSE, **more
    )


CASES = [
    mixture((4, 2, 64, 32), n=(11, 7, 3, 1), always=True),  # sorted by expert from four rows on
    mixture((4, 2, 64, 32), group=0, n=(11, 7, 3, 1), always=True),
    mixture((5, 1, 24, 40), group=8, rows=(1, "n"), normalized=False, factor=2.5, n=(23, 5, 1)),
    mixture((7, 7, 16, 16), group=16, scoring="sigmoid", eps=1e-6, n=(13, 2)),
    mixture((4, 3, 32, 64), scoring="sigmoid", biased=True, n=(67, 31, 1)),
    mixture((3, 2, 32, 32), biased=True, activation="gelu_tanh", n=(5, 2)),
    mixture((128, 8, 32, 32), group=0, n=(37, 3, 1)),
    mixture((4, 2, 64, 32), format="mxfp4", n=(11, 3, 1)),
    mixture((3, 2, 32, 32), format="mxfp4", group=8, biased=True, n=(5, 2)),
    mixture((5, 3, 32, 64), format="mxfp4", biases=True, activation="clamped_silu", n=(13, 7, 1), always=True),
    mixture((4, 2, 64, 32), group=0, biases=True, activation="clamped_silu", factor=9.0, n=(11, 3, 1)),
    mixture((3, 1, 16, 24), group=8, biases=True, rows=(1, "n"), n=(7, 2)),
]
