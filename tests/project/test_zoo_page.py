"""The zoo's CSV has every program of tests/studies/zoo, once, and docs/zoo.md the counts of its rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.studies.zoo.index import programs
from tests.studies.zoo.outcome import Kind, Outcome, difference
from tests.studies.zoo.page import HEAD, PAGE, PROGRAMS, read_csv, row, summary, to_csv, with_part

WRITE = "run python -m tests.studies zoo --write"


@pytest.fixture(scope="module")
def rows():
    return read_csv(PROGRAMS)


def test_zoo_file_lists_programs_once(rows):
    known = [(p.name, p.family, p.about.removesuffix(".")) for p in programs().values()]
    assert [(row["program"], row["family"], row["description"]) for row in rows] == known, WRITE


def test_zoo_page_counts_equal_rows(rows):
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_part(text, "programs", summary(rows)), WRITE


def test_zoo_summary_counts_outcomes_and_keeps_largest_error(rows):
    some = [
        dict(row, family="a", outcome="right", error=error) for row, error in zip(rows, ("1e-7", "2e-6"), strict=False)
    ]
    some.append(dict(rows[0], family="b", outcome="wrong", error=""))
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in summary(some).splitlines()[2:]]
    assert lines == [
        ["a", "2", "2", "0", "0", "0", "0", "2.0e-06"],
        ["b", "1", "0", "1", "0", "0", "0", "–"],
        ["all", "3", "2", "1", "0", "0", "0", "2.0e-06"],
    ]


def test_zoo_has_no_wrong_results_or_crashes(rows):
    assert not {row["outcome"] for row in rows} - {Kind.RIGHT, Kind.EXPORTER, Kind.REFUSED}


def test_zoo_refusals_have_messages(rows):
    assert all(row["message"] for row in rows if row["outcome"] != Kind.RIGHT)


def test_zoo_row_round_trips(tmp_path):
    first, second = list(programs().values())[:2]
    outcomes = (
        Outcome(first.name, Kind.RIGHT, error=1e-7, shapes=3),
        Outcome(second.name, Kind.WRONG, 'a | "b",\n(3,)'),
    )
    written = [row(first, outcomes[0]), row(second, outcomes[1])]
    path = tmp_path / "zoo.csv"
    path.write_text(to_csv(HEAD, written), encoding="utf-8")
    assert read_csv(path) == written and written[0]["shapes"] == "3" and written[1]["error"] == ""


def test_zoo_page_without_mark_raises():
    with pytest.raises(ValueError, match="expected <!-- other: begin -->"):
        with_part("# A page", "other", "")


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
