"""The documentation: it builds without a warning, leaves nothing out, and its blocks follow the rules of pages.py."""

from __future__ import annotations

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

import webpte
from tests.support.harness import pages
from webpte.cli import COMMANDS, load_command

ROOT = pages.ROOT
SRC = ROOT / "src" / "webpte"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site. Unknown references and pages outside the table of contents are warnings, and fail here."""
    out = tmp_path_factory.mktemp("site")
    sphinx = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-n", "-q", "-b", "html"]
    built = subprocess.run([*sphinx, "-d", out / "trees", ROOT / "docs", out], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return out


def text_of(page: Path) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8")))


def anchors(page: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', page.read_text(encoding="utf-8")))


def test_every_page_is_built(site):
    assert {p.stem for p in (ROOT / "docs").glob("*.md")} <= {p.stem for p in site.glob("*.html")}


def test_every_command_and_option_is_described(site):
    text = text_of(site / "commands.html")
    for name in COMMANDS:
        assert f"command-{name}" in anchors(site / "commands.html")
        for action in load_command(name)[1]._actions:
            assert all(option in text for option in action.option_strings), (name, action.option_strings)


def test_every_error_is_described(site):
    defined = {
        name
        for path in SRC.glob("**/*.py")
        for name in re.findall(r"^class (\w+)\((?:\w*Error)\):", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert "InputError" in defined and "ContextFullError" in defined
    text = text_of(site / "errors.html")
    for name in defined | {"Error"}:
        assert f"error-{name.lower()}" in {anchor.lower() for anchor in anchors(site / "errors.html")}, name
    assert " ".join((webpte.GuardError.__doc__ or "").split()) in text
    assert "each dim must be from 1 to its bound …" in text


def test_drawings_are_part_of_their_page(site):
    page = (site / "dynamic-shapes.html").read_text(encoding="utf-8")
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="dynamic-shapes"' in page


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_are_runnable_or_marked(page):
    assert not list(pages.problems(page))
    pages.steps(page)


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_pages_link_to_exist(page):
    text = re.sub(r"^(```+).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not target.startswith(("http:", "https:", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("(64, 4)\n", "(64, 4)\n", True),
        ("(64, 4)  \n\n", "(64, 4)\n", True),
        ("a 12 kB\nb\nc\n", "a ...\nb\n...\n", True),
        ("(64, 5)\n", "(64, 4)\n", False),
        ("(64, 4)\nmore\n", "(64, 4)\n", False),
        ("b\n", "a ...\n", False),
    ],
)
def test_output_is_compared(printed, shown, same):
    assert pages.agrees(printed, shown) is same


def test_blocks_become_files(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# a.py\nx = 1\n```\n```output\none\n```\n```python\ny = 2\n```\n```output\ntwo\n```\n"
        "```python fragment\nz\n```\n```sh\nls\n```\n```text\nno\n```\n"
    )
    first, second = pages.steps(page)
    assert (first.name, first.body, first.output) == ("a.py", "# a.py\nx = 1\ny = 2\n", "one\ntwo\n")
    assert (second.language, second.body, second.output, second.line) == ("sh", "ls\n", None, 17)
    page.write_text("```python later\nx\n```\n```brainfuck\n+\n```\n```python fragment\nx = \n```\n")
    assert [problem.split(":")[1] for problem in pages.problems(page)] == ["1", "4", "7"]
    page.write_text("```python\nx = 1\n```\n")
    with pytest.raises(ValueError, match=r"page\.md:1: no file above it"):
        pages.steps(page)
