"""`import webpte` shows all public names and no other, and loads each when it is used."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import textwrap
import types
from pathlib import Path

import pytest

import webpte

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_dir_lists_public_names():
    assert dir(webpte) == sorted(webpte.__all__)
    assert {"load", "Program", "Method", "Runtime", "llm", "export", "show_versions"} <= set(dir(webpte))
    assert not {"Any", "TYPE_CHECKING", "annotations"} & set(dir(webpte))


def test_public_names_exist_and_are_documented():
    page = API_PAGE.read_text(encoding="utf-8")
    for name in dir(webpte):
        result = getattr(webpte, name)
        assert result is getattr(webpte, name)
        assert isinstance(result, (type, types.FunctionType, types.ModuleType, str))
        if (isinstance(result, type) and issubclass(result, webpte.Error)) or name == "__version__":
            continue  # errors have a page that is made of them
        assert f"webpte.{name}" in page, f"docs/api.md does not tell of webpte.{name}"


def test_public_names_equal_type_checker_view():
    """The imports for type checkers name everything that comes later."""
    tree = ast.parse(Path(webpte.__file__).read_text(encoding="utf-8"))
    checked = next(n for n in tree.body if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING")
    named = {alias.name for node in checked.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert named & set(webpte.__all__) == set(webpte._HOMES)  # others are types of the functions that fill hooks


def test_public_name_missing_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'webpte' has no attribute 'lode'") as caught:
        webpte.lode  # type: ignore[attr-defined]  # noqa: B018
    assert (caught.value.name, caught.value.obj) == ("lode", webpte)  # of which Python makes "Did you mean: 'load'?"


def documented_classes() -> dict[str, set[str] | None]:
    """Return the classes of the API page, each with the members that it lists; None where it documents all."""
    blocks = re.findall(r"\.\. autoclass:: ([\w.]+)(?:\(\))?\n((?: {3}:.*\n)*)", API_PAGE.read_text(encoding="utf-8"))
    results: dict[str, set[str] | None] = {}
    for name, options in blocks:
        listed = re.search(r":members: (.*)", options)
        results[name] = set(listed[1].split(", ")) if listed else None
    return results


def public_attributes(cls: type) -> set[str]:
    """Return what tab completion shows of an object: names of its classes, and attributes that their methods set."""
    results: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("webpte"):
            results |= {*vars(base), *inspect.get_annotations(base)}
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
                if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                    results |= {node.attr} if ast.unparse(node.value) == "self" else set()
    return {name for name in results if not name.startswith("_")}


@pytest.mark.parametrize("name", [name for name, members in documented_classes().items() if members is not None])
def test_public_attributes_equal_api_page(name):
    module, _, cls = name.rpartition(".")
    members = documented_classes()[name]
    assert members is not None
    special = {member for member in members if member.startswith("__")}
    assert public_attributes(getattr(importlib.import_module(module), cls)) == members - special
