"""docs/operators.md equals the table that the code generates."""

from __future__ import annotations

from tests.support.harness.operator_table import PATH, table


def test_operators_page_is_current():
    assert PATH.read_text() == table(), "run python -m tests.support.harness.operator_table --write"
