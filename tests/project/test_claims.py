"""Commands with their options, modules, names of the package and source files that documents name exist.

Limits that a reader has to know before they try are stated where readers begin.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.harness.pages import PAGES, ROOT
from webpte.cli import COMMANDS, load_command
from webpte.graph import BACKENDS
from webpte.graph.method import OTHER_BACKENDS

DOCUMENTS = sorted(
    {*PAGES, *(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "AGENTS.md"}
)
HISTORY = {"changelog.md"}  # says what was there once
CODE = re.compile(r"^(`{3,})([^\n]*)\n(.*?)^\1|(?<!`)`([^`\n]+)`", re.MULTILINE | re.DOTALL)


def code_lines(page: Path) -> Iterator[str]:
    """Yield the lines of code blocks without outputs, continued ones as one, and spans of code."""
    for _, kind, block, span in CODE.findall(page.read_text(encoding="utf-8")):
        if kind.startswith("output"):
            continue
        yield from re.sub(r"\\\n\s*", " ", block or span).splitlines()


def commands_in(page: Path) -> Iterator[list[str]]:
    for line in code_lines(page):
        match = re.search(r"(?:^|[$|;&]\s*|\s)webpte ([a-z]+)((?: [^|;&>]*)?)", line)
        if match and (line.lstrip("$ ").startswith("webpte ") or "| webpte " in line):
            try:
                yield [match[1], *shlex.split(match[2], comments=True)]
            except ValueError:  # a quotation that continues in the next line
                yield [match[1]]


@functools.cache
def options_of(command: str) -> frozenset[str]:
    actions = load_command(command)[1]._actions
    return frozenset(option for action in actions for option in action.option_strings)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_and_options_that_a_page_names_exist(page):
    for command, *arguments in commands_in(page):
        assert command in COMMANDS, f"webpte {command}"
        for argument in arguments:
            option = argument.partition("=")[0].strip("[],.…")
            if re.fullmatch(r"--?[a-z][a-z-]*", option):
                assert option in options_of(command), f"webpte {command} {option}"


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_modules_that_a_page_runs_exist(page):
    for line in code_lines(page):
        for name in re.findall(r"python -m ((?:tests|bench|docs|webpte)[\w.]*)", line):
            assert importlib.util.find_spec(name) is not None, name


@pytest.mark.parametrize(
    "page", [p for p in DOCUMENTS if p.name not in HISTORY], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_names_of_the_package_that_a_page_uses_exist(page):
    for line in code_lines(page):
        for name in re.findall(r"(?<![\w./-])webpte((?:\.[A-Za-z_]\w*)+)\(", line):
            value = importlib.import_module("webpte")
            for part in name[1:].split("."):
                if not hasattr(value, part):
                    value = importlib.import_module(f"{value.__name__}.{part}")
                else:
                    value = getattr(value, part)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_source_files_that_a_page_names_exist(page):
    folders = (ROOT, ROOT / "src" / "webpte", ROOT / "docs", page.parent)
    for name in re.findall(r"`([\w./-]*/[\w-]+\.(?:py|wgsl|ts|toml|yml))`", page.read_text(encoding="utf-8")):
        assert any((folder / name).exists() for folder in folders), f"{page.name}: {name}"


def test_documents_show_each_command_outside_reference():
    shown = {command for page in DOCUMENTS if page.name != "commands.md" for command, *_ in commands_in(page)}
    assert shown == set(COMMANDS)


def test_documents_comparing_servers_name_webpte_serve():
    for page in DOCUMENTS:
        text = page.read_text(encoding="utf-8")
        if "llama-server" in text or "vllm serve" in text:
            assert "webpte serve" in text, page.name


def test_questions_link_to_the_list_of_families():
    """The list is generated; `test_families_page.py` compares it with the code."""
    questions = (ROOT / "docs" / "faq.md").read_text(encoding="utf-8")
    assert "models.md#language-models-by-family" in questions


def test_table_of_delegates_has_every_backend():
    text = (ROOT / "docs" / "exporting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+Backend)` \| (.*?) \| (\w+)", text, re.MULTILINE)
    verdicts = dict.fromkeys(BACKENDS, "runs") | dict.fromkeys(OTHER_BACKENDS, "rejected")
    assert {name: verdict for name, _, verdict in rows} == verdicts
    assert {name: purpose for name, purpose, verdict in rows if verdict == "rejected"} == OTHER_BACKENDS


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_first_page_states_that_gpus_are_not_measured(page):
    assert "has not been measured on GPUs yet" in " ".join((ROOT / page).read_text(encoding="utf-8").split())


def test_readme_fits_its_length_and_compares_features_without_times():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"## Compared with others\n\n(.*?)\n\n", text, re.DOTALL)
    assert not re.search(r"\d ?[mnµ]?s\b", table) and len(text.splitlines()) <= 150


def test_page_for_users_of_other_runtimes_keeps_their_checkpoints():
    """A file that runs as it is needs no export."""
    text = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    assert re.findall(r"^## From (\S+)", text, re.MULTILINE) == [
        "executorch.runtime", "onnxruntime", "transformers", "llama.cpp", "Ollama",
    ]  # fmt: skip
    rows = [row.split("|")[1:3] for row in text.splitlines() if row.startswith("| `llama-") and "-m model.gguf" in row]
    assert len(rows) >= 3 and all("model.gguf" in ours and ".pte" not in ours for _, ours in rows)
