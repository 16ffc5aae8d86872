"""The page about files from untrusted sources shows the numbers that the code holds."""

from __future__ import annotations

from pathlib import Path

from tests.studies.fuzz.targets import TARGETS
from webpte.budgets import BUDGETS
from webpte.container.flat import MAX_NAME_CHARS, MAX_WORK_PER_BYTE

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text()


def test_budgets_equal_code():
    _, _, table = PAGE.partition("## Budgets")
    rows = [line for line in table.partition("##")[0].splitlines() if line.startswith("| `")]
    assert rows == [f"| `{name}` | {most:,} | {meaning} |" for name, (most, meaning) in BUDGETS.items()]
    assert f"at most {MAX_NAME_CHARS:,} characters" in PAGE and MAX_WORK_PER_BYTE == 8


def test_security_page_names_fuzz_targets():
    assert all(name in PAGE for name in TARGETS)


def test_readers_find_the_page():
    _, _, explanation = (ROOT / "docs" / "index.md").read_text().partition(":caption: Explanation")
    assert "security" in explanation.partition("```")[0]
    assert "docs/security.md" in (ROOT / "README.md").read_text() and (ROOT / "SECURITY.md").exists()
