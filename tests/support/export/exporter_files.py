"""Which files of the package have a say in what an exporter writes: a change elsewhere exports nothing again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[3] / "src" / "webpte"
PACKAGES = ("builder", "checkpoints", "export")


def exporter_files(*names: str) -> list[Path]:
    """Modules by name, such as "builder/llm", and all that they import of PACKAGES, also within functions.

    Families find each other by looking into their folder: name the one that is meant.
    """
    new = {SRC / f"{name}.py" for name in names}
    results: set[Path] = set()
    while new:
        path = new.pop()
        results.add(path)
        new |= set(_imported(path)) - results
    return sorted(results)


def _imported(path: Path) -> Iterator[Path]:
    for node in ast.walk(ast.parse(path.read_bytes())):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = path.parents[node.level - 1].joinpath(*(node.module or "").split("."))
        for place in (base, *(base / alias.name for alias in node.names)):
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file() and file.relative_to(SRC).parts[0] in PACKAGES:
                    yield file
