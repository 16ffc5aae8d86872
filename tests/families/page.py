"""The families' part of docs/models.md: written by `python -m tests.families --write`, checked by a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.support.models.architectures import DOCS as DOCS
from tests.support.models.architectures import FAMILIES as HEADING
from tests.support.models.families import first
from webpte.export.families import families

HEAD = ("Family", "Models", "What is special", "GGUF", "Window", "f32", "4w")
TEXT = """
Written by `python -m tests.families --write`. Checkpoints of these families are exported by `webpte export`; each line
is a file in `src/webpte/export/families`. Of each a tiny checkpoint with random weights, saved by `transformers`, is
exported and run: a prefill of 17 tokens and 12 decode steps, beyond the *window* if it has one. *f32* is the largest
difference from `transformers` eager, *4w* that from the quantised module run eagerly, both of the largest logit.
"""


class Errors(NamedTuple):
    """None is not measured."""

    f32: float | None
    four_bits: float | None


def section(errors: Mapping[str, Errors]) -> str:
    names = sorted(errors, key=lambda name: families()[name].name)
    measured = [(*described(name), *map(shown, errors[name])) for name in names]
    lines = [f"| {' | '.join(row)} |" for row in (HEAD, ("---",) * len(HEAD), *measured)]
    return "\n".join([HEADING, TEXT, *lines, "", ""])


def shown(error: float | None) -> str:
    return "not measured" if error is None else f"{error:.1e}"


def read(cell: str) -> float | None:
    return None if cell == shown(None) else float(cell)


def described(name: str) -> tuple[str, ...]:
    """All of a family's row but what is measured."""
    family = families()[name]
    gguf = ", ".join(f"`{kind}`" for kind in family.gguf_types) or "no"
    return (family.name, family.models, family.special, gguf, str(first(name).fields.get("sliding_window") or "none"))


def parts(text: str) -> tuple[str, str, str]:
    """What stands before the section, the section, and what stands behind it."""
    before, _, rest = text.partition(HEADING)
    end = rest.find("\n## ") + 1
    return before, HEADING + rest[:end], rest[end:]


def rows(text: str) -> list[dict[str, str]]:
    """Of the table in a page, by its head."""
    lines = [line for line in parts(text)[1].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def known() -> dict[str, Errors]:
    """What the page says, by family."""
    numbers = {row["Family"]: Errors(read(row["f32"]), read(row["4w"])) for row in rows(DOCS.read_text())}
    return {name: numbers[family.name] for name, family in families().items() if family.name in numbers}


def write(errors: Mapping[str, Errors]) -> None:
    before, _, behind = parts(DOCS.read_text())
    DOCS.write_text(before + section(errors) + behind)
