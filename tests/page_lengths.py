"""Count the words of handwritten pages, which may not exceed a limit: python -m tests.words prints and checks them.

A word has a letter or a digit. Outputs, screens and generated parts do not count, because their length is that of what
they show.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
TOTAL = 55_000
USER_PAGE = 2_000  # for a page that a user reads to do something
# Pages whose text and tables a script writes; bench/benchmarks_page.md is what is handwritten of benchmarks.md.
GENERATED = frozenset(
    f"docs/{name}.md" for name in ("benchmarks", "devices", "model-programs", "models", "operators", "results")
)
# Reference and explanation, which are looked up or read once.
LONG = {
    "docs/architecture.md": 4_300, "docs/security.md": 2_900, "docs/plans.md": 2_350, "docs/testing.md": 2_200,
    "CHANGELOG.md": 10_000,
}  # fmt: skip
NOT_COUNTED = frozenset({"CHANGELOG.md"})  # a record, which only grows
_SCREEN = re.compile(r"^(`{3,})(?:output|text)[^\n]*\n.*?^\1$", re.MULTILINE | re.DOTALL)
_PART = re.compile(r"<!-- ([\w ]+): begin -->.*?<!-- \1: end -->|<!-- ([\w ]+) -->.*?<!-- end \2 -->", re.DOTALL)


def count(text: str) -> int:
    """Return the handwritten words of a page."""
    kept = _PART.sub("", _SCREEN.sub("", text))
    return sum(re.search(r"\w", word) is not None for word in kept.split())


def pages() -> list[str]:
    """Return the Markdown files of the repository that are written by hand."""
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in listed.split() if name not in GENERATED and (ROOT / name).exists()]


def lengths() -> dict[str, int]:
    return {name: count((ROOT / name).read_text(encoding="utf-8")) for name in pages()}


def problems(words: dict[str, int]) -> Iterator[str]:
    """Yield the pages, and the sum, that have too many words."""
    for name, number in words.items():
        limit = LONG.get(name, USER_PAGE)
        if number > limit:
            yield f"{name}: {number:,} words; at most {limit:,}. Divide the page, or say a thing in one place."
    total = sum(number for name, number in words.items() if name not in NOT_COUNTED)
    if total > TOTAL:
        yield f"handwritten pages: {total:,} words; at most {TOTAL:,}"
