"""Markdown pages as programs: which blocks run, in which order, and what they must print.

- Blocks of the languages `python` and `sh` run, in the order of the page and all in one folder.
- A Python block that starts with `# name.py` is that file; one that does not continues the file above it.
- A block of the language `output` is what the block above it printed, to the letter. `output varies` is a real run
  too, but numbers (with their units), bars, spaces and the order of lines may differ. Times and rates depend on the
  machine; sizes and counts of files may drift by a fifth at most, because a reader plans with them.
- What a block prints is shown, unless it is marked `quiet`. One marked `fails` must fail; its errors are shown as well.
- `sh serves` is a server, which ends when it has printed its address: that line is its `output`.
- `python fragment` is shown only, and must parse. `console` is commands that do not end by themselves; other languages,
  such as `text`, are shown only.

`python -m tests.support.harness.run_pages --write` writes the `output` blocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGES = tuple(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md"))
PAGES += tuple(sorted(ROOT.glob("docs/**/*.md")))
SHOWN = {"", "console", "js", "json", "text", "toml", "wgsl", "yaml"}
MARKS = {"python": {"fragment", "quiet", "fails"}, "sh": {"quiet", "fails", "serves"}, "output": {"varies"}}
_FENCE = re.compile(r"^(```+)([^\n`]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"# (\w+\.py)\n")
_UNIT = r"(?: ?(?:[kMGT]i?B|B|bytes|[nµm]?s|[kMGT]?FLOPS?|ops|tok|tokens|%|×|x)(?![A-Za-z])(?:/s)?)?"
_NUMBER = re.compile(rf"[-+]?\b\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?{_UNIT}", re.ASCII)
_SIZE = re.compile(r"(?<![\w.])(\d[\d,]*(?:\.\d+)?) ?([kMGT]i?B|B|bytes|files)(?![A-Za-z/])", re.ASCII)
_BYTES = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
DRIFT = 0.2  # how far a size may be from the one that a page shows
_BARS = re.compile(r"[▁▂▃▄▅▆▇█▏▎▍▌▋▊▉·━─╸╺]+")


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, what follows the language, its text, the line it starts at, and its place."""

    language: str
    mark: str
    body: str
    line: int
    span: tuple[int, int] = (0, 0)


@dataclass
class Part:
    """A block that runs, and the one that shows what it printed."""

    block: Block
    shown: Block | None = None


@dataclass
class Step:
    """Something that runs: a Python file, of one block or several, or shell commands."""

    language: str
    name: str
    parts: list[Part] = field(default_factory=list)

    @property
    def body(self) -> str:
        return "".join(part.block.body for part in self.parts)

    @property
    def fails(self) -> bool:
        return self.parts[-1].block.mark == "fails"


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    results = []
    for match in _FENCE.finditer(text):
        language, _, mark = match[2].strip().partition(" ")
        results.append(Block(language, mark.strip(), match[3], text.count("\n", 0, match.start()) + 1, match.span()))
    return results


def steps(page: Path) -> list[Step]:
    results: list[Step] = []
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language == "output":
            if not results or results[-1].parts[-1].shown is not None:
                raise ValueError(f"{where}: nothing above it prints this")
            results[-1].parts[-1].shown = block
        elif block.language == "sh":
            results.append(Step("sh", "shell", [Part(block)]))
        elif block.language == "python" and block.mark != "fragment":
            if named := _NAME.match(block.body):
                results.append(Step("python", named[1]))
            elif not results or results[-1].language != "python":
                raise ValueError(f"{where}: no file above it to continue; start with `# name.py`")
            results[-1].parts.append(Part(block))
    return results


def problems(page: Path) -> Iterator[str]:
    """Blocks that the rules above have no place for."""
    for block in blocks(page):
        where = f"{page.name}:{block.line}"
        if block.language.startswith("{"):  # a directive, which Sphinx checks
            continue
        if block.language not in SHOWN | set(MARKS):
            yield f"{where}: unknown language {block.language!r}"
        elif block.mark and block.mark not in MARKS.get(block.language, ()):
            yield f"{where}: {block.language} has no mark {block.mark!r}"
        elif block.mark == "fragment":
            try:
                compile(block.body, where, "exec", dont_inherit=True)
            except SyntaxError as error:
                yield f"{where}: {error}"
        elif block.language == "console" and not all(line.startswith("$ ") for line in block.body.splitlines()):
            yield f"{where}: console is for commands alone; what prints something is `sh` and `output`"


def agrees(printed: str, shown: Block) -> bool:
    """Return whether a program printed what the page shows. Spaces at the ends of lines do not count."""
    if shown.mark == "varies":
        return masked(printed) == masked(shown.body) and near(sizes(printed), sizes(shown.body))
    return trimmed(printed) == trimmed(shown.body)


def masked(text: str) -> list[str]:
    """Return the lines of an output without what differs from run to run."""
    return sorted(line for line in map(_masked, text.splitlines()) if line)


def _masked(line: str) -> str:
    return " ".join(_NUMBER.sub("#", _BARS.sub("#", line)).split())


def sizes(text: str) -> dict[str, list[tuple[float, ...]]]:
    """Return the sizes in bytes and the counts of files of each line, by the line without its numbers."""
    results: dict[str, list[tuple[float, ...]]] = {}
    for line in text.splitlines():
        numbers = tuple(float(number.replace(",", "")) * _factor(unit) for number, unit in _SIZE.findall(line))
        results.setdefault(_masked(line), []).append(numbers)
    return {line: sorted(rows) for line, rows in results.items()}


def _factor(unit: str) -> float:
    return 1 if unit in ("bytes", "files") else _BYTES[unit.removesuffix("B")]


def near(got: dict[str, list[tuple[float, ...]]], shown: dict[str, list[tuple[float, ...]]]) -> bool:
    """Return whether every size is within DRIFT of the one that is shown."""
    pairs = (
        (one, other)
        for line, rows in got.items()
        for ours, theirs in zip(rows, shown.get(line, []), strict=True)
        for one, other in zip(ours, theirs, strict=True)
    )
    return all(abs(one - other) <= DRIFT * max(other, 1) for one, other in pairs)


def trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.rstrip().splitlines())


def runnable(pages: Sequence[Path] = PAGES) -> list[Path]:
    return [page for page in pages if steps(page)]
