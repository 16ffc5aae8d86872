"""Report words and names that the project does not use, and docstrings that do not begin with an imperative verb.

python -m tests.words [FOLDER or FILE...]    # every hit as file:line, and exit code 1 if there is one
python -m tests.words --lengths              # the words of each handwritten page

A line of Markdown, Python, JavaScript or HTML is searched as it is; fences that show what a program printed are left
out, because that text belongs to the program. Of tests and bench, comments, docstrings and names are searched: their
strings are input of the programs under test.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests import page_lengths

ROOT = Path(__file__).parents[1]
DEFAULT = ("src", "docs", "README.md", "CONTRIBUTING.md", "web/src", "web/pages", "tests", "bench")
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
    r"colour|\bcentred?\b|\blicence": "American: color, center, license",
}

# A function's docstring begins with an imperative verb. Ruff's D401 checks verbs, but not properties and other words.
NOT_VERB = re.compile(
    r"an?|after|all|and|as|at|before|by|each|for|from|how|if|in|its?|never|no|of|on|one|only|some|such|that|the|their"
    r"|these|this|those|to|what|when|where|whether|which|whose?|why|with|without|.*[^a-z].*",
    re.IGNORECASE,
)

# A test is named for its subject, which is not one of these.
NOT_SUBJECT = re.compile(
    r"test_(?:an?|all|another|any|both|each|every|everything|it|its|neither|no|nobody|none|nothing|one|other|several|some"
    r"|something|that|the|there|these|they|this|those|what|whatever|which|who|whoever)(?:_|$)"
)

# An identifier says what a value is; these do not.
PARTICIPLES = frozenset({"found", "given", "made", "told", "wanted"})

# Files whose whole syntax tree is part of the key of a problem: a new name would compute all of these anew.
KEYED = ("bench/checkpoints.py", "bench/models.py", "bench/reference.py", "bench/rows.py")

# A place, a text in the line, and the reason why it is right there.
ALLOWED = (
    ("CHANGELOG.md", "key `quantised`", "the old name of a renamed key"),
    ("docs/chat.md", "Name a colour", "a prompt whose answer the page shows"),
    ("docs/coming-from.md", "Name three colours", "a prompt whose answer the page shows"),
    ("docs/demo/answers.json", "", "training data of the committed demo model"),
    ("docs/requirements.md", "`tests/", "names of tests"),
    ("docs/notebooks/language-model.ipynb", "Tell me a joke", "a prompt that the demo model knows"),
    ("tests/studies/random_modules/lowering.py", "given", "a parameter, which is part of the key of random programs"),
    ("tests/studies/random_modules/module.py", "given", "a parameter, which is part of the key of random programs"),
    ("tests/studies/random_modules/module.py", "wanted", "a parameter, which is part of the key of random programs"),
    ("tests/support/models/attention_ops.py", "given", "the name of an input of an exported program"),
    ("tests/support/models/training.py", "given", "a function, which is part of the key of an export"),
    ("src/webpte/debug/report/calls.py", "made", "the name of a field of the report"),
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
    in_tests = shown.parts[0] in ("tests", "bench")
    if shown.as_posix().startswith(KEYED):
        return
    if path.suffix == ".py":
        if shown.parts[0] == "src":
            for number, word in first_words(path):
                if NOT_VERB.fullmatch(word):
                    yield Hit(shown, number, word, "an imperative verb, such as Return")
        if shown.parts[0] == "src" or in_tests:
            yield from wrong_names(path, shown)
    for number, line in comments(path) if in_tests else prose(path):
        for pattern, instead in WORDS.items():
            for result in re.finditer(pattern, line, re.IGNORECASE):
                if not any(shown.as_posix() == place and text in line for place, text, _ in ALLOWED):
                    yield Hit(shown, number, result[0], instead)


def first_words(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the line and the first word of every function's docstring."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and (text := ast.get_docstring(node)):
            yield node.body[0].lineno, text.split()[0].rstrip(",:.")


def wrong_names(path: Path, shown: Path) -> Iterator[Hit]:
    """Yield the tests of a file that are not named for a subject, and its identifiers that are participles."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = list(ast.walk(tree))
    imported = {name.name for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.alias(asname=str(name)):
                names = [name]
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Attribute(attr=name) | ast.MatchAs(name=str(name)):
                names = [name]
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                pass
            case _:
                continue
        for name in names:
            allowed = any(shown.as_posix() == place and text == name for place, text, _ in ALLOWED)
            if name in PARTICIPLES - imported and not allowed:
                yield Hit(shown, node.lineno, name, "a name that says what the value is")
            elif NOT_SUBJECT.match(name) and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Hit(shown, node.lineno, name, "test_<subject>_<condition>_<result>")


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the numbered lines of the comments and docstrings of a Python file; nothing of another file."""
    if path.suffix != ".py":
        return
    text = path.read_text(encoding="utf-8")
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and (
            docstring := ast.get_docstring(node, clean=False)
        ):
            yield from enumerate(docstring.splitlines(), node.body[0].lineno)


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
    parser.add_argument("places", nargs="*", type=Path)
    parser.add_argument("--lengths", action="store_true", help="print the words of each handwritten page")
    options = parser.parse_args(arguments)
    places = options.places or [ROOT / name for name in DEFAULT]
    results = [str(hit) for path in files(places) for hit in hits(path.resolve())]
    if options.lengths or not options.places:
        words = page_lengths.lengths()
        results += page_lengths.problems(words)
    if options.lengths:
        print(*(f"{number:6,} {name}" for name, number in sorted(words.items(), key=lambda item: item[1])), sep="\n")
    print(*results, f"{len(results)} hits", sep="\n")
    return int(bool(results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
