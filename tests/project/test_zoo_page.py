"""docs/zoo.md has every program of tests/zoo, once, and counts that are those of its rows."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from tests.zoo.index import programs
from tests.zoo.outcome import Kind, Outcome, difference
from tests.zoo.page import DOCS, FAMILY, section, tables

WRITE = "run python -m tests.zoo --write"


@pytest.fixture(scope="module")
def page():
    return tables(DOCS.read_text())


def test_zoo_page_lists_programs_once(page):
    rows = [row[0] for heading, rows in page.items() if heading for row in rows]
    assert sorted(rows) == sorted(programs()), WRITE


def test_zoo_page_counts_equal_rows(page):
    family = {name: program.family for name, program in programs().items()}
    counted = Counter((family[row[0]], heading) for heading, rows in page.items() if heading for row in rows)
    counted.update({("all", kind): sum(n for (_, k), n in counted.items() if k == kind) for kind in Kind})
    for name, total, *rest in page[""]:
        numbers = dict(zip(Kind, map(int, rest), strict=False))
        assert numbers == {kind: counted[name, kind] for kind in Kind}, f"{name}: {WRITE}"
        assert int(total) == sum(numbers.values()), f"{name}: {WRITE}"
    assert {row[0] for row in page[""]} == {*family.values(), "all"}, WRITE
    assert all(len(row) == len(FAMILY) for row in page[""])


def test_zoo_page_has_no_wrong_results_or_crashes(page):
    assert Kind.WRONG not in page and Kind.CRASHED not in page


def test_zoo_page_refusals_have_reasons(page):
    assert all(row[2].strip("`") for kind in Kind if kind != Kind.RIGHT for row in page.get(kind, ()))


def test_zoo_page_round_trips():
    name, other = list(programs())[:2]
    text = section({name: Outcome(name, Kind.RIGHT, error=1e-7), other: Outcome(other, Kind.WRONG, "a | `b` at (3,)")})
    result = tables(text)
    assert result["right"][0][0] == name and result["wrong"][0][0] == other
    assert result["wrong"][0][2] == "`a ¦ 'b' at (3,)`"


def test_zoo_has_enough_programs_and_families():
    assert len(programs()) >= 264
    assert len({program.family for program in programs().values()}) >= 10


@pytest.mark.parametrize(
    ("got", "want"),
    [
        ([float("nan")], [1.0]),
        ([1.0], [float("nan")]),
        ([float("inf")], [1.0]),
        ([float("-inf")], [float("inf")]),
        ([1], [2]),
        ([1], [1.0]),
        ([[1.0]], [1.0]),
        ([True], [False]),
    ],
)
def test_zoo_difference_detects_mismatch(got, want):
    assert difference([np.asarray(got)], (np.asarray(want),))[1]
    assert difference([], (np.asarray(want),))[1]


def test_zoo_difference_relative_to_largest_value():
    both = np.array([np.nan, np.inf, 4, 0], np.float32)
    error, why = difference([both + np.array([0, 0, 0, 0.5], np.float32)], (both,))
    assert (error, why) == (0.125, "")
