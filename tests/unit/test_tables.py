"""Tables that fit: whole columns go, cells are never cut."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.text import Text

from tests.support.harness.screens import check_table, printed
from webpte.cli import inspect
from webpte.cli.terminal import Column, OutputTable, wrap


def lines(table, width):
    return printed([lambda page: page.table(table)], width)[1:]


def sample():
    table = OutputTable((Column("name"), Column("size", 1, number=True), Column("note", 2)))
    table.add("first", "1.21 MB", "a note of some length")
    table.add("second", "32 kB", "another")
    return table


def test_whole_columns_go_by_rank_and_are_named():
    assert lines(sample(), None) == [
        "name       size  note",
        "first   1.21 MB  a note of some length",
        "second    32 kB  another",
    ]
    assert lines(sample(), 60) == lines(sample(), None)
    assert lines(sample(), 30)[:3] == ["name       size", "first   1.21 MB", "second    32 kB"]
    assert lines(sample(), 30)[3:] == ["not shown: note (use a wider", "terminal, a pipe or --json)"]
    assert lines(sample(), 12)[:3] == ["name", "first", "second"]


def test_table_distinguishing_column_stays():
    table = OutputTable((Column("name"), Column("note", 2), Column("more", 1)))
    table.add("same", "x" * 20, "a" * 20)
    table.add("same", "y" * 20, "a" * 20)
    assert lines(table, 30)[1:3] == [f"same  {'x' * 20}", f"same  {'y' * 20}"]
    assert lines(table, 30)[3].startswith("not shown: more")


def test_table_long_name_and_prose_wrap():
    table = OutputTable((Column("name"), Column("why", prose=True)))
    table.add("n" * 40, "it needs 428 kB of memory and 12.5 ms")
    assert lines(table, 50) == [
        "name                      why",
        f"{'n' * 24}  it needs 428 kB of",
        f"{'n' * 16}          memory and 12.5 ms",
    ]


@pytest.mark.parametrize(("text", "width", "expected"), [
    ("takes 12 ms", 8, ["takes", "12 ms"]),
    ("so 428 kB, and 3 more", 7, ["so", "428 kB,", "and 3", "more"]),
    ("  indented words", 10, ["  indented", "words"]),
    ("漢字漢字", 5, ["漢字", "漢字"]),
    ("", 5, [""]),
])  # fmt: skip
def test_table_text_wraps_at_words(text, width, expected):
    assert [line.plain for line in wrap(Text(text), width)] == expected


words = st.text(st.sampled_from("ab1.漢 _/%"), max_size=30).map(str.strip)


@given(st.data(), st.integers(40, 100))
def test_table_any_width_fits(data, width):
    columns = [Column("first")]
    columns += [
        Column(f"c{i}", data.draw(st.integers(0, 3)), prose=data.draw(st.booleans()))
        for i in range(data.draw(st.integers(0, 4)))
    ]
    table = OutputTable(columns)
    for _ in range(data.draw(st.integers(0, 4))):
        table.add(*(data.draw(words) for _ in columns))
    check_table(table, width)
    total = 12 * len(columns) + 2 * (len(columns) - 1) + 12 * sum(column.prose for column in columns)
    if total <= width:
        assert all(cell_len(line) <= width for line in lines(table, width))


def test_table_cell_escape_codes_are_replaced():
    table = OutputTable((Column("name"),))
    table.add("a\x1b[2Jb")
    assert lines(table, None)[1] == "a\ufffd[2Jb"


def test_constants_of_many_users_are_listed_in_narrow_rows():
    """Without a terminal nothing is folded, so the number of users that a row names is limited."""
    entry: Any = {"dtype": "f32", "dims": [64], "bytes": 256, "name": "table", "values": list(range(1000, 1200))}
    shown = printed([lambda page: inspect._constants([entry], page)], None)
    assert max(map(cell_len, shown)) <= 100
    assert "%1000, %1001" in shown[-1] and f"and {200 - inspect.MAX_USERS} more" in shown[-1]
