"""Every operator case against the op's NumPy reference, at its bound and below it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from tests.support.harness.cases import Case, all_cases, run_case
from tests.support.harness.gate import slow
from webpte.lowering import registered

CASES = list(all_cases())


def parameters(names: list[str], one_per_op: bool) -> Iterator[Case | ParameterSet]:
    """The cases to run. Kernels that an op runs only if told to have one in the gate: some take Mesa ten seconds."""
    seen = set()
    for case in all_cases(*names):
        again = (case.op, case.variant) in seen
        seen.add((case.op, case.variant))
        if not (again and one_per_op):
            yield slow(case) if case.variant and again else case


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        names = [name for name in metafunc.config.getoption("cases").split(",") if name]
        metafunc.parametrize("case", parameters(names, metafunc.config.getoption("one_case_per_op")), ids=str)


def test_matches_reference(case, tmp_path, device):
    assert run_case(case, tmp_path) >= 2


def test_every_op_with_a_reference_has_cases():
    covered = {case.op for case in CASES}
    missing = [name for name, op in registered().items() if op.compute is not None and name not in covered]
    assert not missing, f"ops without a case: {missing}"
