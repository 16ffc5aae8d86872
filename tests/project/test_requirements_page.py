"""The requirements in docs/faq.md: every row names tests that exist, and the text has the counts of the rows."""

from __future__ import annotations

import ast
import functools
import re

import pytest

from tests.support.harness.pages import ROOT

PAGE = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in PAGE.splitlines() if line.startswith("| ")]
REQUIREMENTS = [row for row in ROWS if row[0].strip("| ").isdigit()]


@functools.cache
def names_in(path: str) -> frozenset[str]:
    """Return the names of the tests of a file, as pytest writes them."""
    results = set()
    for node in ast.parse((ROOT / path).read_text(encoding="utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for entry in inner:
            if isinstance(entry, ast.FunctionDef | ast.AsyncFunctionDef) and entry.name.startswith("test_"):
                results.add(prefix + entry.name)
    return frozenset(results)


def missing(proof: str) -> list[str]:
    """Tests that a cell names and that are not there; the cell must name some."""
    named = re.findall(r"`([^`]+)`", proof)
    assert named, f"no test in {proof!r}"
    return [one for one in named if not exists(one)]


def exists(named: str) -> bool:
    path, _, name = named.partition("::")
    return (ROOT / path).is_file() and name in names_in(path)


def test_requirements_table_has_25_rows():
    assert [int(row[0]) for row in REQUIREMENTS] == list(range(1, 26)) and {len(row) for row in REQUIREMENTS} == {5}


@pytest.mark.parametrize("row", REQUIREMENTS, ids=lambda row: row[0])
def test_named_tests_exist(row):
    assert not missing(row[3])


def test_requirements_missing_test_is_detected():
    here = "tests/project/test_requirements_page.py"
    assert missing(
        f"`{here}::test_requirements_table_has_25_rows`, `{here}::test_nothing`, `tests/unit/gone.py::test_it`"
    ) == [
        f"{here}::test_nothing",
        "tests/unit/gone.py::test_it",
    ]


def test_threads_are_named_by_project_and_number():
    for row in REQUIREMENTS:
        for thread in row[4].split(", "):
            assert re.fullmatch(r"[\w.-]+#\d+", thread), thread


def test_requirements_counts_equal_rows():
    partly = sum(row[2].startswith("**In part.**") for row in REQUIREMENTS)
    text, answered = " ".join(PAGE.split()), len(REQUIREMENTS) - partly
    assert f"Of the {len(REQUIREMENTS)} requirements, **{answered} are met** and **{partly} is met in part**" in text
    assert answered >= 22
