"""A row of slot attention has the same bits in any batch that runs the same kernel.

On a GPU that is the kernel for single rows in batches of at most 16 rows, and the tiles in larger ones.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import webpte
from tests.cases.attention.slot_attention import pieces, slotted
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
    OneOp(subject).write(tmp_path / "op.pte")
    random = np.random.default_rng(3)
    inputs = [t.array({"n": ROWS}, random) for t in subject.tensors if not t.constant]

    def part(first: int, end: int) -> list[np.ndarray]:
        return [x[:, first:end] if x.ndim == 4 else x[first:end] for x in inputs]

    with choosing(variant), webpte.load(tmp_path / "op.pte") as program:
        method = program.method()
        apart = np.concatenate([method.run(part(*ends))[0] for ends in itertools.pairwise(bounds)], axis=1)
        method.reset()
        if variant == "tile":
            together = method.run(part(0, ROWS))[0]
        else:
            together = np.concatenate([method.run(part(at, at + 1))[0] for at in range(bounds[-1])], axis=1)
    assert np.abs(together).max() > 0.1
    assert apart.tobytes() == together.tobytes()
