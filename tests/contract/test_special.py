"""Special values through every op that takes floats, against eager PyTorch: equal, or in the documented list."""

from __future__ import annotations

import functools

import pytest

from tests.studies.special.documented import DOCUMENTED, undocumented_and_unused
from tests.studies.special.sweep import Difference, every_case, some_cases, sweep
from tests.studies.special.values import SOME_PLANTINGS
from tests.support.harness.gate import slow_but

pytestmark = pytest.mark.gpu
CASES = some_cases()
PARTS = 8


@functools.cache
def differences(part: int) -> tuple[Difference, ...]:
    return tuple(sweep(CASES[part::PARTS], SOME_PLANTINGS))


def test_special_values_sweep_covers_float_ops():
    assert {case.op for case in CASES} == {case.op for case in every_case()}
    assert len(CASES) > 350 and {"aten.sin.default", "webpte.linear"} <= {case.op for case in CASES}


@pytest.mark.parametrize("part", slow_but(range(0, PARTS, 2), range(PARTS)))
def test_special_values_differences_are_documented(part):
    surprising, _ = undocumented_and_unused((d.op, d.value, d.kind) for d in differences(part))
    shown = [d for d in differences(part) if (d.op, d.value, d.kind) in surprising]
    assert not shown, "\n".join(sorted({f"{d.dtype}, {d.value}, {d.kind}: {d.example}" for d in shown}))


@pytest.mark.slow
def test_special_values_documented_reasons_are_in_use(request):
    """The whole sweep asks this of each op."""
    if request.config.getoption("configuration") != "usual":
        pytest.skip("another driver may have fewer differences")
    results = [(d.op, d.value, d.kind) for part in range(PARTS) for d in differences(part)]
    _, unused = undocumented_and_unused(results)
    asked = [entry for entry in DOCUMENTED if not entry.rare]
    assert not [entry.title for entry in asked if all(f"{entry.title}: {op}" in unused for op in entry.ops)]
