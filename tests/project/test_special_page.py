"""docs/files/special-values.csv lists what the sweep of special values may find."""

from __future__ import annotations

from tests.studies.special.__main__ import DATA
from tests.studies.special.documented import DOCUMENTED, csv_table
from tests.studies.special.values import SOME_PLANTINGS, VALUES
from webpte.lowering import registered


def test_special_values_file_is_current():
    assert csv_table() == DATA.read_text(encoding="utf-8"), "run python -m tests.studies special --write"


def test_entries_name_ops_values_and_reasons():
    for entry in DOCUMENTED:
        assert set(entry.ops) <= set(registered()), entry.title
        assert set(entry.values) <= {*VALUES, "mixed", "mixed with largest"}, entry.title
        assert entry.reason.endswith(".") and (entry.values or entry.kinds), entry.title


def test_special_values_ci_part_plants_each_value():
    assert {value for value, _ in SOME_PLANTINGS} == {*VALUES, "mixed", "mixed with largest"}
