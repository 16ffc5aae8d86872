"""Quick programs of the zoo, of every family: `python -m tests.zoo` runs all of them, in many minutes."""

from __future__ import annotations

import pytest

from tests.zoo.index import programs
from tests.zoo.outcome import Kind, judge
from tests.zoo.pool import Child

QUICK = (
    "view_u8_flat", "view_f64", "view_i16", "view_opblock", "nans", "const_out", "outs_views_dyn", "scalars", "u8img",
    "indexput_acc", "k_emptyin", "norms", "intmath", "syms4", "multimethod", "ptd", "webgpu_part", "conv_transpose1d",
    "emb_pad", "st_add", "st_int", "st_ema", "st_slice", "st_idxput_dyn", "bilinear", "gptneox", "emb_8_0", "bf16in",
    "q8_et", "chlast", "pad_circ", "i64_cmp", "mapop",
)  # fmt: skip


@pytest.mark.parametrize("name", QUICK)
def test_zoo_program_equals_eager(name):
    found = judge(programs()[name])
    assert found.kind is Kind.RIGHT, found


def test_zoo_crashing_program_is_an_outcome(monkeypatch):
    child = Child()
    monkeypatch.setattr("tests.zoo.pool.COMMAND", ("-c", "import sys; sys.stdin.readline(); sys.exit(7)"))
    try:
        found = child.judge(programs()["emb_pad"])
    finally:
        child.end()
    assert found.kind is Kind.CRASHED
    assert "7" in found.why
