"""The documentation: it builds without a warning, leaves nothing out, and its blocks follow the rules of pages.py."""

from __future__ import annotations

import builtins
import html
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import webpte
from tests.support.harness import pages, run_pages
from webpte.cli import COMMANDS, load_command

ROOT = pages.ROOT
SRC = ROOT / "src" / "webpte"
OURS = re.compile(r"https://(?:github\.com/webpte/webpte/blob|raw\.githubusercontent\.com/webpte/webpte)/main/")


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


@pytest.mark.slow
def test_docs_pages_are_all_built(site):
    assert {p.stem for p in (ROOT / "docs").glob("*.md")} <= {p.stem for p in site.glob("*.html")}


def test_docs_site_has_linked_demo_model(site):
    assert 'href="demo/index.html"' in (site / "web.html").read_text(encoding="utf-8")
    assert (site / "demo" / "index.html").exists() and (site / "demo" / "manifest.json").exists()


def test_docs_describe_each_command_and_option(site):
    text = text_of(site / "commands.html")
    for name in COMMANDS:
        assert f"command-{name}" in anchors(site / "commands.html")
        for action in load_command(name)[1]._actions:
            assert all(option in text for option in action.option_strings), (name, action.option_strings)


def test_docs_describe_each_error(site):
    defined = {
        name
        for path in SRC.glob("**/*.py")
        for name, base in re.findall(r"^class (\w+)\((\w*Error)\):", path.read_text(encoding="utf-8"), re.MULTILINE)
        if not hasattr(builtins, base)  # those that pydantic catches are not errors of webpte
    }
    assert "InputError" in defined and "ContextFullError" in defined
    text = text_of(site / "errors.html")
    for name in defined | {"Error"}:
        assert f"error-{name.lower()}" in {anchor.lower() for anchor in anchors(site / "errors.html")}, name
    assert " ".join((webpte.GuardError.__doc__ or "").split()) in text
    assert "expected …, got shape …" in text and "(bound)" in text


def test_links_and_anchors_of_the_site_lead_somewhere(site):
    """Those into the site itself; nothing is asked of the network."""
    built = {path: anchors(path) | {""} for path in site.glob("**/*.html") if "demo" not in path.parts}
    checked, wrong = 0, []
    for path in built:
        for target in re.findall(r'\b(?:href|src)="([^"]*)"', path.read_text(encoding="utf-8")):
            target = html.unescape(target)
            if re.match(r"[a-z]+:|//", target) or target.startswith("_static/"):
                continue
            checked += 1
            file, _, anchor = target.partition("#")
            result = path if not file else (path.parent / unquote(file.partition("?")[0])).resolve()
            if not result.exists() or (result in built and unquote(anchor) not in built[result]):
                wrong.append(f"{path.relative_to(site)}: {target}")
    assert checked > 1000 and not wrong, sorted(set(wrong))[:20]


def test_options_keep_their_dashes(site):
    assert "--html OUT" in text_of(site / "commands.html") and "–html" not in text_of(site / "commands.html")
    for page in site.glob("*.html"):
        assert not re.search(r"[\s(]–[a-z]{2}", text_of(page)), page.name


def test_docs_copy_button_on_input_not_output(site):
    script = (site / "_static" / "copybutton.js").read_text(encoding="utf-8")
    (selector,) = re.findall("COPYBUTTON_SELECTOR = '(.*)'", script)
    assert "highlight-sh" in selector and "highlight-output" not in selector


def test_drawings_are_part_of_their_page(site):
    page = (site / "run.html").read_text(encoding="utf-8")
    assert '<svg xmlns="http://www.w3.org/2000/svg" class="dynamic-shapes"' in page


def test_first_page_has_a_drawing_for_phones(site):
    """The page of a phone is 390 px wide, with margins of 16 px."""
    page = (site / "index.html").read_text(encoding="utf-8")
    (width,) = re.findall(r'<div class="drawing narrow"><svg [^>]*viewBox="0 0 (\d+) \d+"', page)
    assert int(width) <= 390 - 2 * 16 and '<div class="drawing wide">' in page


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_are_runnable_or_marked(page):
    assert not list(pages.problems(page))
    pages.steps(page)


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_files_that_pages_link_to_exist(page):
    text = re.sub(r"^(```+).*?^\1$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file = target.partition("#")[0]
        if ours := OURS.match(file):  # on a page of docs/, for files that are not part of the site
            assert page.parent != ROOT, f"{page.name}: make {target} relative"
            assert (ROOT / file[ours.end() :]).exists(), f"{page.name} links to {target}"
        elif not target.startswith(("http:", "https:", "#")):
            assert (page.parent / file).exists(), f"{page.name} links to {target}"


@pytest.mark.parametrize(
    ("printed", "mark", "shown", "same"),
    [
        ("(64, 4)\n", "", "(64, 4)\n", True),
        ("(64, 4)  \n\n", "", "(64, 4)\n", True),
        ("(64, 5)\n", "", "(64, 4)\n", False),
        ("(64, 4)\nmore\n", "", "(64, 4)\n", False),
        ("a 12 kB\n", "", "a ...\n", False),
        ("load   1.25 ms, 8 %\nb ▁▂▃ 2\n", "varies", "b ▅ 17\nload 980 µs, 100 %\n", True),
        ("load 1.25 ms\n", "varies", "load 1.25 ms of GPU\n", False),
        ("load 1.25 ms\n", "varies", "load ...\n", False),
        ("a 1\na 1\n", "varies", "a 1\n", False),
        ("48 files, 119 MB\n", "varies", "44 files, 120 MB\n", True),
        ("b 99 kB in 3 s\na 9 kB in 3 s\n", "varies", "a 9.5 kB in 30 ms\nb 0.1 MB in 30 ms\n", True),
        ("76 kB\n", "varies", "63 kB\n", False),
        ("55 files\n", "varies", "44 files\n", False),
        ("1,200 MB/s\n", "varies", "44 MB/s\n", True),
    ],
)
def test_output_is_compared(printed, mark, shown, same):
    assert pages.agrees(printed, pages.Block("output", mark, shown, 1)) is same


def test_block_that_serves_prints_its_address_with_the_default_port(tmp_path):
    page, program = tmp_path / "page.md", tmp_path / "server.py"
    page.write_text("```sh serves\npython server.py\n```\n```output\nopen http://127.0.0.1:8000\n```\n")
    program.write_text(
        'import os, time\nprint(\'{"event": "a line of the log"}\')\n'
        "print(f'open http://127.0.0.1:{os.environ[\"WEBPTE_SERVE_PORT\"]}', flush=True)\ntime.sleep(600)\n"
    )
    (step,) = pages.steps(page)
    (printed,) = run_pages.run_step(step, tmp_path, os.environ)
    shown = step.parts[0].shown
    assert printed == "open http://127.0.0.1:8000\n" and shown is not None and pages.agrees(printed, shown)
    program.write_text("print('no model')\n")
    with pytest.raises(AssertionError, match="ended without an address:\nno model"):
        run_pages.run_step(step, tmp_path, os.environ)


def test_blocks_become_files(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\n# a.py\nx = 1\n```\n```output\none\n```\n```python\ny = 2\n```\n```output varies\ntwo\n```\n"
        "```python fragment\nz\n```\n```sh fails\nls\n```\n```text\nno\n```\n"
    )
    first, second = pages.steps(page)
    assert (first.name, first.body, first.fails) == ("a.py", "# a.py\nx = 1\ny = 2\n", False)
    shown = [part.shown for part in first.parts if part.shown is not None]
    assert [(block.body, block.mark) for block in shown] == [("one\n", ""), ("two\n", "varies")]
    assert (second.language, second.body, second.fails, second.parts[0].shown) == ("sh", "ls\n", True, None)
    assert not list(pages.problems(page))
    page.write_text(
        "```python later\nx\n```\n```brainfuck\n+\n```\n```python fragment\nx = \n```\n"
        "```console\n$ webpte x.pte\nsaid\n```\n"
    )
    assert [problem.split(":")[1] for problem in pages.problems(page)] == ["1", "4", "7", "10"]
    for text, message in (
        ("```python\nx = 1\n```\n", "no file above it"),
        ("```output\nx\n```\n", "nothing above it"),
        ("```sh\nls\n```\n```output\na\n```\n```output\na\n```\n", "nothing above it"),
    ):
        page.write_text(text)
        with pytest.raises(ValueError, match=rf"page\.md:\d+: {message}"):
            pages.steps(page)


def test_docs_page_output_is_written(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n```python\n# a.py\nprint(1)\n```\n\nNow\n```python\nprint(2)\n```\n```output varies\n5 ms\n```\n"
        "```python\nprint(3)\n```\n```output\nold\n```\n```sh\necho no; false\n```\n```sh quiet\necho no\n```\nEnd\n"
    )
    first, shell, quiet = pages.steps(page)
    printed = run_pages.run_step(first, tmp_path, os.environ)
    assert printed == ["1\n", "2\n", "3\n"] and (tmp_path / "a.py").read_text() == first.body
    with pytest.raises(AssertionError, match="gave 1"):
        run_pages.run_step(shell, tmp_path, os.environ)
    results = [run_pages.Finding(part, text) for part, text in zip(first.parts, ("", "12 ms\n", "3\n"), strict=True)]
    assert run_pages.Finding(quiet.parts[0], "").problem(ROOT / "x.md") is None
    written = run_pages.rewritten(page.read_text(), [*results, run_pages.Finding(shell.parts[0], "no\n")])
    assert "```output varies\n5 ms\n```" in written and "```output\n3\n```" in written and "old" not in written
    assert "echo no; false\n```\n\n```output\nno\n```\n" in written and written.endswith("End\n")
