"""Remedies in messages name things that exist: extras, packages, commands with their options, keywords of functions."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import webpte
from webpte.cli import COMMANDS, load_command
from webpte.export import export_llm, lower
from webpte.llm import LLM
from webpte.llm.model import LLMLoadOptions
from webpte.plan.segments import by_torch

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def strings(path: Path) -> list[str]:
    """Return every string of a module; what is filled in when it is printed stands as {}."""
    result = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.JoinedStr):
            result.append("".join(str(v.value) if isinstance(v, ast.Constant) else "{}" for v in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            result.append(node.value)
    return result


@functools.cache  # not when the module is imported: every worker of the gate imports it, and one runs its tests
def texts() -> list[str]:
    """Return every string of the package."""
    return [text for path in sorted((ROOT / "src" / "webpte").rglob("*.py")) for text in strings(path)]


def mentions(pattern: str) -> list[tuple[str, ...]]:
    matches = [match.groups() for text in texts() for match in re.finditer(pattern, text)]
    assert matches, f"nothing looks like {pattern}: the test no longer sees what is printed"
    return matches


def test_extras_exist():
    for (extras,) in mentions(r"webpte\[([\w,]+)\]"):
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"]), extras


def test_remedies_name_known_packages():
    groups = [*PROJECT["optional-dependencies"].values(), *PYPROJECT["dependency-groups"].values()]
    listed = " ".join(entry for group in groups for entry in group if isinstance(entry, str))
    for (package,) in mentions(r"pip install (\w[\w-]*)"):
        assert package == "webpte" or package in listed, package


def test_system_packages_are_those_that_ci_installs():
    script = (ROOT / ".ci" / "run").read_text()
    for (packages,) in mentions(r"apt-get install ((?:[a-z][a-z0-9-]*[0-9-][a-z0-9-]* ?)+)"):
        for package in packages.split():
            assert package in script, package


def test_commands_and_their_options_exist():
    for command, rest in mentions(r"\bwebpte ([a-z]+)((?: (?:--[a-z][a-z-]*|[A-Z]+\b|\d\w*|\S+\.(?:pte|gguf)))+)"):
        assert command in COMMANDS, command
        _, parser = load_command(command)
        for option in re.findall(r"--[a-z][a-z-]*", rest):
            assert option in parser.format_help(), f"webpte {command} has no {option}"


def test_keywords_exist():
    functions: dict[str, Callable] = {
        "load": webpte.load,
        "LLM.load": LLM.load,
        "lower": lower,
        "export_llm": export_llm,
    }
    for name, values in mentions(r"\b((?:LLM\.)?load|lower|export_llm)\(([^()]*\w+=[^()]*)\)"):
        for keyword in re.findall(r"(\w+)=", values):
            parameters = inspect.signature(functions[name]).parameters
            keywords = {*parameters, *(LLMLoadOptions.__annotations__ if name == "LLM.load" else ())}
            assert keyword in keywords, f"{name} takes no {keyword}"


def test_torch_is_recommended_where_it_would_help(monkeypatch):
    monkeypatch.setattr("webpte.plan.segments.find_spec", lambda name: None)
    assert "Installing torch" in by_torch("aten::lgamma.out")
    assert "Installing torch" not in by_torch("dim_order_ops::_other.out")
    monkeypatch.setattr("webpte.plan.segments.find_spec", lambda name: "installed")
    assert "Installing torch" not in by_torch("aten::rand_like.out")


def test_remedy_of_unknown_kernel_names_a_page_of_the_documentation():
    """A wheel has no docs folder: an address is named, which starts as the project's metadata says."""
    (page,) = re.findall(r"https://\S+?\.html", by_torch("mine::squash.out"))
    assert page.startswith(f"{PROJECT['urls']['Documentation']}/")
    assert (ROOT / "docs" / page.rpartition("/")[2].replace(".html", ".md")).is_file()
