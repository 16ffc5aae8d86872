"""docs/operators.md says what the code does."""

from __future__ import annotations

from tests.support.harness.operator_table import PATH, table


def test_the_table_is_up_to_date():
    assert PATH.read_text() == table(), "run python -m tests.support.harness.operator_table --write"
