"""Every operator case against the op's NumPy reference, at its bound and below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from _pytest.mark import ParameterSet

from tests.support.harness.cases import Case, all_cases, cases_by_module, run_case
from tests.support.harness.gate import slow
from webpte.lowering import registered

CASES = list(all_cases())
MAX_GATE_CASES = 5  # cases of an op, evenly spread over all of them; the nightly run has the others


def parameters(names: list[str], one_per_op: bool, one_per_file: bool, every: bool) -> Iterator[Case | ParameterSet]:
    """The cases to run. Kernels that an op runs only if asked to have one in the gate: some take Mesa ten seconds.

    If names select the cases, or `every` is set, only further ones of such kernels are slow.
    """
    results = list(cases_by_module(*names))
    kinds = [(module if one_per_file else case.op, case.variant) for module, case in results]
    totals, seen = Counter(kinds), Counter[tuple[str, str]]()
    for (_, case), kind in zip(results, kinds, strict=True):
        number, most = seen[kind], 1 if case.variant else MAX_GATE_CASES
        seen[kind] += 1
        kept = case.always or number == 0 or (number * most) // totals[kind] != ((number - 1) * most) // totals[kind]
        if number == 0 or not (one_per_op or one_per_file):
            yield case if kept or ((names or every) and not case.variant) else slow(case)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "case" in metafunc.fixturenames:
        names = [name for name in metafunc.config.getoption("cases").split(",") if name]
        options = (metafunc.config.getoption(name) for name in ("one_case_per_op", "one_case_per_file", "every_case"))
        metafunc.parametrize("case", list(parameters(names, *options)), ids=str)


def test_matches_reference(case, tmp_path, device):
    assert run_case(case, tmp_path) >= 2


def test_ops_with_reference_have_cases():
    covered = {case.op for case in CASES}
    missing = [name for name, op in registered().items() if op.compute is not None and name not in covered]
    assert not missing, f"ops without a case: {missing}"
