"""A row of slot attention has the same bits in any batch that runs the same kernel.

On a GPU that is the kernel for single rows in batches of at most 16 rows, and the tiles in larger ones.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import webpte
from tests.cases.attention.slot_attention import pieces, slotted, with_images
from tests.cases.recurrent.slot_convolution import convolved
from tests.cases.recurrent.slot_delta_rule import ruled
from tests.support.harness.cases import OneOp, choosing
from webpte.ops.matmul.product import MAX_FEW_ROWS

ROWS = 67


@pytest.mark.parametrize(
    ("variant", "bounds"),
    [
        ("tile", (0, 17, 38, ROWS)),
        ("lanes split", (0, 1, 3, 4, 4 + MAX_FEW_ROWS)),
        ("broadcast split", (0, 20, 21, ROWS)),
    ],
)
@pytest.mark.parametrize(("cache", "limits"), [("f32", {}), ("f16", {}), ("f32", {"window": 50, "cap": 2.0})])
def test_slot_attention_in_pieces_has_the_bits_of_one_batch(variant, bounds, cache, limits, tmp_path):
    subject = slotted(
        6,
        2,
        64,
        pieces(0, 131, 40),
        rotated=32,
        num_decode=0,
        cache=cache,
        capacity=613,
        slots=4,
        kept=True,
        n=(ROWS, 1),
        **limits,
    )
    whole = (0, ROWS) if variant == "tile" else tuple(range(bounds[-1] + 1))
    with choosing(variant):
        apart, together = in_pieces(subject, tmp_path, bounds, whole)
    assert apart.tobytes() == together.tobytes()


@pytest.mark.parametrize(
    ("variant", "bounds", "whole"),
    [
        ("tile", (0, 17, 38, ROWS), (0, ROWS)),
        ("lanes split", (0, 1, 2, 14, 15, 20), (0, 4, 20)),
        ("broadcast split", (0, 1, 2, 15, 16, 40, ROWS), (0, ROWS)),
    ],
)
def test_slot_attention_of_whole_images_has_the_bits_of_one_batch(variant, bounds, whole, tmp_path):
    """Rows that see each other are in one call; other rows are divided as they come."""
    mapping = with_images(pieces(0, 131, 40), slice(5, 14), slice(25, 37))
    options = {"num_decode": 0, "capacity": 613, "slots": 4, "kept": True, "images": True}
    subject = slotted(6, 2, 64, mapping, rotated=32, window=5, cap=2.0, n=(ROWS, 1), **options)
    with choosing(variant):
        apart, together = in_pieces(subject, tmp_path, bounds, whole)
    assert apart.tobytes() == together.tobytes()


@pytest.mark.parametrize(("kept", "silu"), [(8, True), (64, False)])
def test_slot_convolution_in_pieces_has_the_bits_of_one_batch(kept, silu, tmp_path):
    options = {"num_decode": 0, "slots": 4, "kept": kept, "silu": silu, "constant": True}
    subject = convolved(20, 3, pieces(0, 131, 40), **options, n=(ROWS, 1))
    apart, together = in_pieces(subject, tmp_path, (0, 1, 2, 20, 38, ROWS), (0, ROWS))
    assert apart.tobytes() == together.tobytes()


def test_slot_delta_rule_in_pieces_has_the_bits_of_one_batch(tmp_path):
    subject = ruled((2, 4), (16, 24), pieces(0, 131, 40), slots=4, constant=True, n=(ROWS, 1))
    apart, together = in_pieces(subject, tmp_path, (0, 1, 2, 20, 38, ROWS), (0, ROWS))
    assert apart.tobytes() == together.tobytes()


def in_pieces(subject, folder, *divisions) -> list[np.ndarray]:
    """Return the results of all rows for each division of them into calls, which follow each other in the slots."""
    OneOp(subject).write(folder / "op.pte")
    random, results = np.random.default_rng(3), []
    inputs = [t.array({"n": ROWS}, random) for t in subject.tensors if not t.constant]
    with webpte.load(folder / "op.pte") as program:
        method = program.method()
        for bounds in divisions:
            method.reset()
            parts = [
                [x[:, first:end] if x.ndim > 2 else x[first:end] for x in inputs]
                for first, end in itertools.pairwise(bounds)
            ]
            results.append(np.concatenate([method.run(part)[0].ravel() for part in parts]))
    assert np.abs(results[0]).max() > 0.1
    return results
