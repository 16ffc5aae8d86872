"""Every operator case against the op's NumPy reference, at its bound and below it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from tests.support.harness.cases import Case, all_cases, run_case
from tests.support.harness.gate import slow
from webpte.lowering import registered

CASES = list(all_cases())


def parameters() -> Iterator[Case | ParameterSet]:
    """Of kernels that an op runs only if told to, one case each: Mesa takes ten seconds to compile some of them."""
    seen = set()
    for case in CASES:
        yield slow(case) if case.variant and (case.op, case.variant) in seen else case
        seen.add((case.op, case.variant))


@pytest.mark.parametrize("case", parameters(), ids=str)
def test_matches_reference(case, tmp_path, device):
    assert run_case(case, tmp_path) >= 2


def test_every_op_with_a_reference_has_cases():
    covered = {case.op for case in CASES}
    missing = [name for name, op in registered().items() if op.compute is not None and name not in covered]
    assert not missing, f"ops without a case: {missing}"
