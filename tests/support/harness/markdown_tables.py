"""Sections and tables of the Markdown pages that scripts write and tests read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


def rows(text: str) -> list[tuple[str, ...]]:
    """Return the cells of all rows of tables, heads and rules included."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [tuple(cell.strip() for cell in line.split("|")[1:-1]) for line in lines]


def named_rows(section: str) -> list[dict[str, str]]:
    """Return the cells of each row of a section's one table by the head of the column."""
    head, _, *body = rows(section)
    return [dict(zip(head, row, strict=True)) for row in body]


def parts(text: str, heading: str) -> tuple[str, str, str]:
    """Return what is before a section, the section, and what is after it."""
    before, _, rest = text.partition(f"{heading}\n")
    end = rest.find("\n## ") + 1 or len(rest)
    return before, f"{heading}\n{rest[:end]}", rest[end:]
