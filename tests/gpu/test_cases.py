"""Every operator case against the op's NumPy reference, at its bound and below it."""

from __future__ import annotations

import pytest

from tests.support.harness.cases import all_cases, run_case
from webpte.lowering import registered

CASES = list(all_cases())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_matches_reference(case, tmp_path, device):
    assert run_case(case, tmp_path) >= 2


def test_every_op_with_a_reference_has_cases():
    covered = {case.op for case in CASES}
    missing = [name for name, op in registered().items() if op.compute is not None and name not in covered]
    assert not missing, f"ops without a case: {missing}"
