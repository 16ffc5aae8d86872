"""Int8 weights past what the device binds at once."""

from __future__ import annotations

import pytest

import webpte
from tests.cases.q8ta import float_linear, linear
from tests.support.cases import OneOp

BINDING = "max-storage-buffer-binding-size"
SMALL = 16 << 10
# Rows of weights end at any address; there are at least 60 KB of them.
CASES = [
    linear(("m", 64), 1004, m=(5, 3, 1)),
    linear(("m", 100), 1004, biased=False, activation="relu", m=(5, 3, 1)),
    float_linear(("m", 100), 1004, m=(3, 2, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_parts_give_what_the_whole_gives(case, tmp_path, device):
    program = OneOp(case)
    program.write(tmp_path / "case.pte")
    with webpte.load(tmp_path / "case.pte", limits={BINDING: SMALL}) as loaded:
        method = loaded.method()
        for sizes in case.sizes:
            program.check(method, sizes)
        before = method.counters.snapshot()
        program.check(method, case.sizes[0])
        assert method.counters.since(before).dispatches >= 4
        assert all(b.nbytes <= SMALL for b in method.plan.lowering.touched)


def test_columns_that_do_not_fill_words_are_not_split(tmp_path, device):
    """Parts would share words of the output. The limit, the bytes and the adapter are named."""
    program = OneOp(linear(("m", 64), 1003, m=(5, 3, 1)))
    program.write(tmp_path / "case.pte")
    with (
        webpte.load(tmp_path / "case.pte", limits={BINDING: SMALL}) as loaded,
        pytest.raises(webpte.Error, match="64192"),
    ):
        loaded.method()
