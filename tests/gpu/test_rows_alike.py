"""A row's result has the same bits however many rows stand beside it, in every op that a language model runs.

So a sequence in a batch gives what it gives alone, a prompt may be read in pieces, and a drafted token is checked as it
would have been decoded. A GPU has other kernels for many rows, which add up in another order: see docs/numbers.md.
"""

from __future__ import annotations

import numpy as np
import pytest

import webpte
from tests.cases.attention.slot_attention import FIVE, crossing, slotted
from tests.cases.experts.experts import mixture
from tests.cases.q4.linear_q4 import DQ8, INT8, Q4, QCS, codes, half, int8, joined, rounded, scales, sums
from tests.cases.q8.q8ta import linear as int8_linear
from tests.cases.quantize.quantize import CHOOSE_TOKEN, I8, SIGNED, TOKEN, zeros
from tests.support.harness.cases import OneOp, T, case, choosing
from webpte.device import adapter_caps

MAX_ROWS, WIDTH = 35, 576
COUNTS = (2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 24, MAX_ROWS)
MANY = 17  # rows from which on a GPU may run another kernel
ROWS = {"n": (MAX_ROWS, 1)}


def tokens(*dims):
    return T(*dims, dtype="i32", low=0, high=36)


def fixed(*dims, **options):
    return T(*dims, constant=True, **options)


X, HALF_X = T("n", WIDTH), half(T("n", WIDTH))
SUBJECTS = {
    "4-bit linear": case(Q4, X, codes(37, WIDTH // 2), scales(WIDTH // 32, 40), 32, None, **ROWS),
    "4-bit linear with offsets": joined(X, (36,), offset=True, **ROWS),
    "4-bit linear, any group": case(Q4, T("n", 20), codes(5, 12), scales(1, 8), 20, None, **ROWS),
    "4-bit linear, channels": case(QCS, X, codes(37, WIDTH // 2), scales(37), **ROWS),
    "4-bit linear of int8": case(
        DQ8, X, *rounded("n"), codes(24, WIDTH // 2), sums(18, 24), scales(18, 24), 32, None, **ROWS
    ),
    "4-bit linear of rows in int8": joined(X, (24,), normed=True, row_eps=1e-7, **ROWS),
    "8-bit linear": case(INT8, X, int8(37, WIDTH), scales(37), **ROWS),
    "8-bit linear, odd": case(INT8, T("n", 29), int8(11, 29), scales(11), **ROWS),
    "8-bit linear of int8": int8_linear(("n", 64), 36, **ROWS),
    "linear": case("aten.linear.default", X, fixed(37, WIDTH), fixed(37), **ROWS),
    "linear, odd": case("aten.linear.default", T("n", 29), fixed(11, 29), None, **ROWS),
    "linear of halves": case("aten.linear.default", HALF_X, half(fixed(37, WIDTH)), None, **ROWS),
    "experts": mixture((6, 2, WIDTH, 96), n=ROWS["n"]),  # sorted by expert from six rows on
    "experts in f32": mixture((6, 2, 64, 96), group=0, n=ROWS["n"]),
    "mm": case("aten.mm.default", X, fixed(WIDTH, 36), **ROWS),
    "mm, odd": case("aten.mm.default", T("n", 29), fixed(29, 37), **ROWS),
    "addmm": case("aten.addmm.default", fixed(36), X, fixed(WIDTH, 36), 1, 1, **ROWS),
    "rms norm": case("et_vk.rms_norm.default", X, fixed(WIDTH), 1e-5, **ROWS),
    "rms norm, short": case("et_vk.rms_norm.default", T("n", 3, 20), fixed(20), 1e-5, **ROWS),
    "rms norm of halves": case("et_vk.rms_norm.default", HALF_X, half(fixed(WIDTH)), 1e-5, **ROWS),
    "layer norm": case("aten.native_layer_norm.default", X, [WIDTH], fixed(WIDTH), fixed(WIDTH), 1e-5, **ROWS),
    "embedding": case("aten.embedding.default", fixed(37, 64), tokens("n"), -1, False, False, **ROWS),
    "4-bit embedding": case(
        "et_vk.embedding_q4gsw.default", codes(37, 32), scales(37, 2), 32, tokens("n"), True, **ROWS
    ),
    "8-bit embedding": case(
        "quantized_decomposed.embedding_byte.default", int8(37, 16), scales(37), None, -128, 127, tokens("n"), **ROWS
    ),
    "down product of adapters": case(
        "webpte.adapter_down", X, fixed(3, WIDTH, 8), T("n", dtype="i32", low=0, high=3), **ROWS
    ),
    "up product of adapters": case(
        "webpte.adapter_up", X, T("n", 8), fixed(3, 4, WIDTH), T("n", dtype="i32", low=0, high=3), 4, **ROWS
    ),
    "add": case("aten.add.Tensor", X, T("n", WIDTH), 1, **ROWS),
    "mul": case("aten.mul.Tensor", X, T("n", WIDTH), **ROWS),
    "sigmoid": case("aten.sigmoid.default", X, **ROWS),
    "scales of int8": case(CHOOSE_TOKEN, X, I8, **ROWS),
    "int8": case(TOKEN, X, T("n", 1, low=0.01, high=0.02), zeros("n", 1), *SIGNED, **ROWS),
}


@pytest.mark.parametrize("name", SUBJECTS)
def test_op_row_independent_of_number_of_rows(name, tmp_path, device):
    subject = SUBJECTS[name]
    OneOp(subject).write(tmp_path / "op.pte")
    random = np.random.default_rng(7)
    inputs = [t.array({"n": MAX_ROWS}, random) for t in subject.tensors if not t.constant]
    varying = [t.dims[:1] == ("n",) for t in subject.tensors if not t.constant]

    def part(first: int, end: int) -> list[np.ndarray]:
        return [x[first:end] if cut else x for x, cut in zip(inputs, varying, strict=True)]

    with webpte.load(tmp_path / "op.pte", tune="off") as program:
        method = program.method()
        alone = [method.run(part(row, row + 1)) for row in range(MAX_ROWS)]
        for count in COUNTS:
            if count >= MANY and adapter_caps().kind != "cpu":
                break
            for i, actual in enumerate(method.run(part(0, count))):
                expected = np.concatenate([row[i] for row in alone[:count]])
                assert np.array_equal(actual, expected), f"output {i} of {count} rows"


def test_row_with_few_keys_has_the_same_bits_beside_a_long_one(tmp_path, device):
    """A GPU divides the keys of long rows. Without one, the same call needs no merge."""
    subject = slotted(3, 1, 512, crossing, rotated=32, **FIVE)
    OneOp(subject).write(tmp_path / "op.pte")
    random = np.random.default_rng(7)
    q, k, v, *caches, slot_mapping = (t.array({"n": 5}, random) for t in subject.tensors if not t.constant)
    with choosing("lanes split"), webpte.load(tmp_path / "op.pte") as program:
        method = program.method()

        def run(rows):
            before = method.counters.snapshot()
            result = method.run([q[:, rows], k[:, rows], v[:, rows], *caches, slot_mapping[rows]])[0]
            return result, method.counters.since(before).dispatches - len(caches)  # inputs, which are copied

        together, dispatches = run(slice(0, 5))
        assert dispatches == 2, "attention and its merge"
        for row, (_, position) in enumerate(slot_mapping):
            alone, dispatches = run(slice(row, row + 1))
            assert dispatches == (1 if position < 512 else 2)
            np.testing.assert_array_equal(alone[:, 0], together[:, row])


@pytest.mark.parametrize(
    ("subject", "sequences"),
    [
        (slotted(8, 2, 32, crossing, rotated=32, **FIVE), True),
        (SUBJECTS["rms norm"], False),
    ],
    ids=["slots", "norm"],
)
def test_programs_with_a_kv_cache_are_planned_for_sequences(subject, sequences, tmp_path):
    OneOp(subject).write(tmp_path / "op.pte")
    with webpte.load(tmp_path / "op.pte") as program:
        assert program.planner()._lowering.method.sequences is sequences


KINDS = ((1, 1), (3, 7, 16), (17, 35))  # counts of rows that choose among the same kernels
IN_F16 = ("shared-f16", "shared-64-f16", "shared-wide-f16")
SHARED = ("shared", "shared-64", "shared-wide")
FOUR_BIT = (("tile", "broadcast"), ("lanes", "lanes-bytes"), ("lanes-halves",), SHARED, IN_F16)
# The variants of each order: src/webpte/lowering/variants.py.
ORDERS = [
    (subject, order)
    for subject, orders in {
        "4-bit linear": FOUR_BIT,
        "4-bit linear with offsets": FOUR_BIT,
        "4-bit linear, channels": FOUR_BIT,
        "4-bit linear of int8": (("packed",), ("packed-32", "packed-64"), SHARED),
        "8-bit linear": (("tile", "broadcast"), ("lanes",), SHARED),
        "linear": (("tile", "broadcast"), ("lanes",), SHARED),
        "mm": (("tile", "broadcast"), SHARED),
        "mm, odd": (("tile", "broadcast"), SHARED),
        "rms norm": (("alone",), ("by 8",), ("by 64",)),
        "layer norm": (("alone",), ("by 8",), ("by 64",)),
    }.items()
    for order in orders
]


@pytest.mark.parametrize(("name", "variants"), ORDERS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_variants_of_an_order_give_a_row_the_same_bits_beside_any_rows(name, variants, tmp_path, device):
    subject = SUBJECTS[name]
    OneOp(subject).write(tmp_path / "op.pte")
    specs = [t for t in subject.tensors if not t.constant]
    first = [t.array({"n": MAX_ROWS}, np.random.default_rng(7)) for t in specs]

    def beside_others(count: int) -> list[np.ndarray]:
        """Return the first row, and others that no other call has."""
        others = [t.array({"n": count}, np.random.default_rng(count)) for t in specs]
        rows = [t.dims[:1] == ("n",) for t in specs]
        return [np.concatenate([x[:1], y[1:]]) if cut else x for x, y, cut in zip(first, others, rows, strict=True)]

    seen: dict[int, list[np.ndarray]] = {}
    for variant in variants:
        with choosing(variant), webpte.load(tmp_path / "op.pte") as program:
            method = program.method()
            for kind, counts in enumerate(KINDS):
                for count in counts:
                    row = [out[:1] for out in method.run(beside_others(count))]
                    expected = seen.setdefault(kind, row)
                    assert all(map(np.array_equal, row, expected)), f"{variant}, {count} rows"
