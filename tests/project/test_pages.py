"""The README and the documentation, as written: every block runs, and prints what the page shows.

tests/support/harness/pages.py shows which blocks run, run_pages.py how.
"""

from __future__ import annotations

import pytest

from tests.support.harness import pages, run_pages

# Pages export programs, and a guide runs a dozen scripts one after the other: minutes on a busy machine.
pytestmark = [pytest.mark.contract, pytest.mark.timeout(1800)]
WITH_A_MODEL = [page for page in pages.runnable() if run_pages.needs_a_checkpoint(page)]


def name_of(page):
    return page.relative_to(pages.ROOT).as_posix()


@pytest.fixture(scope="module")
def environments(tmp_path_factory):
    return run_pages.environments(tmp_path_factory.mktemp("environments"))


@pytest.mark.slow  # runs every night, and when a page changes: `python -m tests.affected`
@pytest.mark.parametrize("page", pages.runnable(), ids=name_of)
def test_page(page, tmp_path, environments):
    """If a page exports a language model, a tiny one takes its place and only has to run."""
    check(page, run_pages.findings(page, tmp_path, environments, stand_in=True))


@pytest.mark.slow
@pytest.mark.parametrize("page", WITH_A_MODEL, ids=name_of)
def test_page_with_its_language_model(page, tmp_path, environments):
    check(page, run_pages.findings(page, tmp_path, environments))


def check(page, findings):
    results = [finding.problem(page) for finding in findings]
    assert not any(results), "\n\n".join(filter(None, results))


@pytest.mark.slow
def test_pages_environment_has_no_torch(environments, tmp_path):
    looking = ["python", "-c", "import importlib.util as u; print(u.find_spec('torch'))"]
    assert run_pages.run(looking, tmp_path, environments.fresh) == "None\n"
