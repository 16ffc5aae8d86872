"""Which tests `python -m tests.affected` selects."""

from __future__ import annotations

from pathlib import PurePosixPath

import pytest

from tests.affected import EVERY_CASE, PACKAGING, PLAYER, ROOT, WITNESSES, fast, importers, runnable, select


def test_affected_packages_have_existing_tests():
    packages = {path.name for path in (ROOT / "src" / "webpte").iterdir() if (path / "__init__.py").exists()}
    assert set(WITNESSES) == packages
    for test in (*(test for tests in WITNESSES.values() for test in tests), *PLAYER, *PACKAGING):
        assert (ROOT / "tests" / test).exists(), test


@pytest.mark.parametrize(
    ("changed", "cases"),
    [
        ("src/webpte/ops/norm/norm.py", {"norm.norm"}),
        ("src/webpte/ops/norm/row_norm.wgsl", {"norm"}),  # of several ops
        ("tests/cases/norm/norm.py", {"norm.norm"}),
        ("src/webpte/plan/memory.py", {EVERY_CASE}),
        ("src/webpte/llm/engine/core.py", set()),
    ],
)
def test_cases_of_a_change(changed, cases):
    selection = select([changed])
    assert selection.cases == cases
    assert ("tests/gpu/test_cases.py" in selection.pytest()) == bool(cases)


@pytest.mark.parametrize(
    ("changed", "tests"),
    [
        ("src/webpte/llm/engine/core.py", {"tests/unit/test_engine.py", "tests/contract/test_llm.py"}),
        ("src/webpte/serve/app.py", {"tests/unit/test_agent_loop.py", "tests/serving/test_endpoints.py"}),
        ("src/webpte/errors.py", {"tests/unit/test_container_hostile.py", "tests/process"}),
        ("src/webpte/ops/norm/norm.py", {"tests/unit/test_traits.py", "tests/unit/test_imports.py"}),
        ("web/src/plan.js", {"tests/web/test_programs.py"}),
        ("docs/llm.md", {"tests/project/test_docs.py"}),
        ("pyproject.toml", {"tests/project/test_package.py"}),
        ("tests/support/harness/fake_runner.py", {"tests/unit/test_engine.py"}),
        ("tests/unit/test_plan.py", {"tests/unit/test_plan.py"}),
    ],
)
def test_tests_of_a_change(changed, tests):
    assert tests <= select([changed]).tests


def test_affected_op_selects_no_tests_of_servers_and_files():
    tests = select(["src/webpte/ops/elementwise/unary.py"]).tests
    assert not tests & {"tests/unit/test_agent_loop.py", "tests/unit/test_container_hostile.py"}
    assert len([test for test in tests if test.startswith("tests/unit/")]) < 40


def test_affected_document_selects_its_blocks_and_no_unit_test():
    selection = select(["docs/llm.md"])
    assert runnable(selection.pages) == ["tests/project/test_pages.py::test_page[docs/llm.md]"]
    assert not any(test.startswith("tests/unit") for test in selection.tests)


def test_affected_finds_indirect_importers():
    result = importers(PurePosixPath("tests/support/harness/canaries.py"))  # through cases.py
    assert PurePosixPath("tests/gpu/test_cases.py") in result
    assert PurePosixPath("tests/unit/test_errors.py") not in result


def test_fast_selects_tests_that_name_the_module():
    result = fast(["src/webpte/llm/engine/speculation.py"])
    assert "tests/unit/test_speculation.py" in result and len(result) < 20
