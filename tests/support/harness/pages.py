"""Markdown pages as programs: which blocks run, in which order, and what they must print.

- Blocks of the languages `python` and `sh` run, in the order of the page and all in one folder.
- A Python block that starts with `# name.py` is that file; one that does not continues the file above it.
- A block of the language `output` is what the last of them prints. `...` in it stands for anything.
- `python fragment` is shown only, and must parse. Other languages, such as `console` and `text`, are shown only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = tuple(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md"))
PAGES += tuple(sorted(ROOT.glob("docs/*.md")))
SHOWN = {"", "console", "text", "toml", "wgsl"}
_FENCE = re.compile(r"^(```+)([^\n`]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# (\w+\.py)\n")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what follows the language, its text and the line it starts at."""

    language: str
    mark: str
    body: str
    line: int


@dataclass
class Step:
    """Something that runs: a Python file or shell commands. `output` is None where the page does not show it."""

    language: str
    name: str
    body: str
    line: int
    output: str | None = None


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, _, mark = match[2].strip().partition(" ")
        found.append(Block(language, mark.strip(), match[3], text.count("\n", 0, match.start()) + 1))
    return found


def steps(page: Path) -> list[Step]:
    found: list[Step] = []
    for block in blocks(page):
        if block.language == "output":
            found[-1].output = (found[-1].output or "") + block.body
        elif block.language == "sh" and not block.mark:
            found.append(Step("sh", "shell", block.body, block.line))
        elif block.language == "python" and not block.mark:
            named = _NAME.match(block.body)
            if named:
                found.append(Step("python", named[1], block.body, block.line))
            elif found and found[-1].language == "python":
                found[-1].body += block.body
            else:
                raise ValueError(f"{page.name}:{block.line}: no file above it to continue; start with `# name.py`")
    return found


def problems(page: Path) -> Iterator[str]:
    """Blocks that the rules above have no place for."""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language.startswith("{"):  # a directive, which Sphinx checks
            continue
        if block.mark == "fragment" and block.language == "python":
            try:
                compile(block.body, where, "exec", dont_inherit=True)
            except SyntaxError as error:
                yield f"{where}: {error}"
        elif block.mark:
            yield f"{where}: {block.language} has no mark {block.mark!r}"
        elif block.language not in SHOWN | {"python", "sh", "output"}:
            yield f"{where}: unknown language {block.language!r}"


def agrees(printed: str, shown: str) -> bool:
    """Whether a program printed what the page shows. Spaces at the ends of lines do not count."""
    pattern = ".*?".join(map(re.escape, _trimmed(shown).split("...")))
    return re.fullmatch(pattern, _trimmed(printed), re.DOTALL) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def runnable(pages: Sequence[Path] = PAGES) -> list[Path]:
    return [page for page in pages if steps(page)]
