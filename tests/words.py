"""Report words that the project does not use, and docstrings that do not begin with an imperative verb.

python -m tests.words [FOLDER or FILE...]    # every hit as file:line, and exit code 1 if there is one

A line of Markdown, Python, JavaScript or HTML is searched as it is; fences that show what a program printed are left
out, because that text belongs to the program.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DEFAULT = ("src", "docs", "README.md", "CONTRIBUTING.md", "web/src", "web/pages")
SUFFIXES = {".py", ".md", ".ipynb", ".js", ".wgsl", ".html", ".json"}

# A pattern, and what to write instead.
WORDS = {
    r"\btold\b|\btells?\b(?!\()": "report, show, state",
    r"\bbehind\b": "after",
    r"\bso many\b": "the number",
    r"(?<!\bthere )\b(?:is|are) no\b(?! longer| more)": "is not a",
    r"\b(?:is|are) the (?:most|least)\b": "at most, at least",
    r"\b(?:is|are) wanted\b": "is required, is requested",
    r"\bfor the while\b": "temporarily",
    r"\bgo(?:es)? on\b|\bwent on\b": "continue",
    r"\balike\b": "the same, equal",
    r"\blikeliest\b": "most probable",
    r"\bof no use\b": "unused",
    r"\b(?:whoever|nobody|somebody|anybody)\b": "the component that acts",
    r"\bwhole numbers?\b": "integer",
    r"\bno (?:JSON|UTF-8)\b": "not valid JSON, invalid UTF-8",
    r"\bstrangers?\b": "untrusted",
    r"\bpictures?\b": "image",
    r"\blets? go of\b": "release, free",
    r"\bone's own\b|\bof your own making\b": "custom",
    r"\bwhat goes wrong\b": "every failure",
    r"(?:normal|special|material|recogn|quant|optim|initial|serial|synchron|vector)is(?:e|ing|ation)": "American: -ize",
    r"\bbehaviour": "American: behavior",
}

# A function's docstring begins with an imperative verb. Ruff's D401 checks verbs, but not properties and other words.
NOT_VERB = re.compile(
    r"an?|after|all|and|as|at|before|by|each|for|from|how|if|in|its?|never|no|of|on|one|only|some|such|that|the|their"
    r"|these|this|those|to|what|when|where|whether|which|whose?|why|with|without|.*[^a-z].*",
    re.IGNORECASE,
)

# A place, a text in the line, and the reason why it is right there.
ALLOWED = (
    ("docs/demo/answers.json", "", "training data of the committed demo model"),
    ("docs/faq.md", "`tests/", "names of tests"),
    ("docs/models.md", "ormalis", "docstrings of test programs, which identify their archived exports"),
    ("docs/notebooks/language-model.ipynb", "Tell me a joke", "a prompt that the demo model knows"),
)


@dataclass(frozen=True)
class Hit:
    """A word to replace, and where it is."""

    path: Path
    line: int
    word: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}; write: {self.instead}"


def hits(path: Path) -> Iterator[Hit]:
    """Yield the words of a file to replace, without the exceptions."""
    shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    if path.is_relative_to(ROOT / "src") and path.suffix == ".py":
        for number, word in first_words(path):
            if NOT_VERB.fullmatch(word):
                yield Hit(shown, number, word, "an imperative verb, such as Return")
    for number, line in prose(path):
        for pattern, instead in WORDS.items():
            for result in re.finditer(pattern, line, re.IGNORECASE):
                if not any(shown.as_posix() == place and text in line for place, text, _ in ALLOWED):
                    yield Hit(shown, number, result[0], instead)


def first_words(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the first word of every function's docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text.split()[0].rstrip(",:.")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of a file; of Markdown, without fences that show an output."""
    inside = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        fence = re.match(r"(`{3,})(\w*)", line) if path.suffix == ".md" else None
        if fence and not inside:
            inside = fence[2] or "text"
        elif fence:
            inside = ""
        elif inside not in ("output", "text"):
            yield number, line


def files(places: Sequence[Path]) -> Iterator[Path]:
    """Yield the files to search in folders and files."""
    for place in places:
        results = [place] if place.is_file() else sorted(place.rglob("*"))
        yield from (path for path in results if path.suffix in SUFFIXES and "node_modules" not in path.parts)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.words", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("places", nargs="*", type=Path, default=[ROOT / name for name in DEFAULT])
    results = [hit for path in files(parser.parse_args(arguments).places) for hit in hits(path.resolve())]
    print(*results, f"{len(results)} hits", sep="\n")
    return int(bool(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
