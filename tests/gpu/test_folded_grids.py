"""Every op with its grids folded into rows, as those of more than 65,535 workgroups are."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest

from tests.support.harness.cases import Case, all_cases, run_case
from tests.support.harness.gate import slow_but
from webpte.lowering import registered

MIN_ELEMENTS, MAX_ELEMENTS = 300, 30_000  # elements of the largest operand: several workgroups, but soon done


def _size(case: Case) -> int:
    return max((int(np.prod(t.at(case.sizes[0]))) for t in case.tensors), default=0)


def _one_per_op() -> list[Case]:
    """Return the first case of several workgroups; of elementwise ops, which share a kernel, only a sum."""
    results: dict[tuple[str, str], Case] = {}
    formulas = {name for name, registered_op in registered().items() if callable(registered_op.traits.elementwise)}
    for case in all_cases():
        if (case.op not in formulas or case.op == "aten.add.Tensor") and MIN_ELEMENTS <= _size(case) <= MAX_ELEMENTS:
            results.setdefault((case.op, case.variant), case)
    return list(results.values())


def folded(threads: int, workgroup: int, per_dimension: int) -> tuple[int, int, int]:
    groups = -(-threads // workgroup)
    rows = min(groups, 3)
    return (-(-groups // max(rows, 1)), rows, 1)


USUAL = [case for case in _one_per_op() if not case.variant]  # Mesa takes seconds to compile some of the others


@pytest.mark.parametrize("case", slow_but(USUAL, _one_per_op()), ids=str)
def test_op_case_folded_grid_same_result(case, tmp_path, device):
    with mock.patch("webpte.lowering.context.grid_for", folded):
        assert run_case(case, tmp_path) >= 2
