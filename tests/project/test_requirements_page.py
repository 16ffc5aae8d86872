"""Check docs/requirements.md: every section names tests that exist, and the text has the counts of the sections."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

import pytest

from tests.support.harness.pages import ROOT

PAGE = (ROOT / "docs" / "requirements.md").read_text(encoding="utf-8")


class Requirement(NamedTuple):
    """A section of the page."""

    number: int
    text: str  # how it is met
    tests: tuple[str, ...]
    threads: tuple[str, ...]


def sections(page: str) -> list[Requirement]:
    results = []
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        head, text, rest = section.split("\n\n", 2)
        *tests, threads = " ".join(rest.split()).removeprefix("- ").split(" - ")
        results.append(
            Requirement(
                int(head.partition(".")[0]), text, tuple(tests), tuple(threads.removeprefix("Threads: ").split(", "))
            )
        )
    return results


REQUIREMENTS = sections(PAGE)


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


def missing(tests: Sequence[str]) -> list[str]:
    """Return the names of tests that do not exist."""
    assert tests
    return [one for one in tests if not exists(one.strip("`"))]


def exists(named: str) -> bool:
    path, _, name = named.partition("::")
    return (ROOT / path).is_file() and name in names_in(path)


def test_requirements_page_has_25_sections():
    assert [one.number for one in REQUIREMENTS] == list(range(1, 26))


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda one: str(one.number))
def test_requirement_names_existing_tests(requirement):
    assert not missing(requirement.tests)


def test_requirement_naming_absent_test_is_detected():
    here = "tests/project/test_requirements_page.py"
    absent = [f"`{here}::test_nothing`", "`tests/unit/gone.py::test_it`"]
    assert missing([f"`{here}::test_requirements_page_has_25_sections`", *absent]) == absent


def test_requirement_threads_are_project_and_number():
    for requirement in REQUIREMENTS:
        for thread in requirement.threads:
            assert re.fullmatch(r"[\w.-]+#\d+", thread), thread


def test_requirements_counts_equal_sections():
    partly = sum(one.text.startswith("**In part.**") for one in REQUIREMENTS)
    text, answered = " ".join(PAGE.split()), len(REQUIREMENTS) - partly
    assert f"Of the {len(REQUIREMENTS)} requirements, **{answered} are met** and **{partly} is met in part**" in text
    assert answered >= 22
