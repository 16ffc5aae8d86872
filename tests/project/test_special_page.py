"""docs/numbers.md lists what the sweep of special values may find."""

from __future__ import annotations

from tests.special.documented import DOCUMENTED
from tests.special.page import PAGE, written
from tests.special.values import SOME_PLANTINGS, VALUES
from webpte.lowering import registered


def test_the_page_has_the_list():
    assert written(PAGE.read_text()) == PAGE.read_text(), "run python -m tests.special --write"


def test_entries_name_ops_values_and_reasons():
    for entry in DOCUMENTED:
        assert set(entry.ops) <= set(registered()), entry.title
        assert set(entry.values) <= {*VALUES, "mixed", "mixed with largest"}, entry.title
        assert entry.reason.endswith(".") and (entry.values or entry.kinds), entry.title


def test_each_value_is_planted_in_the_part_that_ci_runs():
    assert {value for value, _ in SOME_PLANTINGS} == {*VALUES, "mixed", "mixed with largest"}
