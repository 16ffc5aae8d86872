"""The section of docs/numbers.md that is written from the list."""

from __future__ import annotations

from pathlib import Path

from tests.special.documented import table

PAGE = Path(__file__).parents[2] / "docs" / "numbers.md"
BEGIN, END = "<!-- begin special values -->\n", "<!-- end special values -->\n"


def written(text: str) -> str:
    """The page with the list as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n\n{END}{after}"
