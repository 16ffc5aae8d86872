"""Special values through every kernel that NumPy runs on the CPU: as eager PyTorch has them, or in the lists."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.studies.special.cpu import DIFFERENT, OWN, UNSWEPT, names_by_op, sweep, unswept
from webpte.runtime.kernels import KERNELS

SWEPT = [op for op in names_by_op() if not unswept(op)]


def test_lists_of_exceptions_name_only_kernels():
    assert set(UNSWEPT) <= set(names_by_op())
    assert {op for op, _ in DIFFERENT} <= set(SWEPT)
    assert {one.op for one in OWN} <= set(KERNELS)


@pytest.mark.parametrize("op", SWEPT)
def test_kernel_with_special_values_matches_eager(op):
    outcomes = [outcome for name in names_by_op()[op] for outcome in sweep(name)]
    assert None in outcomes, "no case that eager accepts: add one, or a reason to UNSWEPT"
    results = {f"{outcome.kind}: {outcome.example}" for outcome in outcomes if outcome is not None}
    assert not results, "\n".join(sorted(results)[:10])
