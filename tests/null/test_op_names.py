"""Ops are named in `graph/names.py` and in the patterns of passes, nowhere else in the two rooms that rewrite graphs.

Whatever is known of an op is a fact of the op: a list of names beside it would not know a user's.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import webpte
from webpte.lowering import registered

SRC = Path(webpte.__file__).parent
TABLE = "graph/names.py"
FILES = sorted(path.relative_to(SRC).as_posix() for room in ("graph", "fusion") for path in (SRC / room).rglob("*.py"))
NAMESPACES = r"(aten|et_vk|webpte|dim_order_ops|executorch_prim|torchao|llama|sdpa|quantized_decomposed)\w*(\.|::)"
OPS = {*registered(), *(kernel for op in registered().values() for kernel in op.kernels)}


def is_name(text: str, room: str) -> bool:
    """Whether a string is an op's name or begins like one. In graph/, `add` may also be a function of expressions."""
    return bool(re.match(NAMESPACES, text)) or (text in OPS and (room == "fusion" or "." in text or ":" in text))


def literals(tree: ast.Module) -> Iterator[tuple[ast.Constant, bool]]:
    """Strings that are no documentation, and whether they stand in the module's table PATTERN."""
    documented = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    docs = {id(n.body[0].value) for n in documented if n.body and isinstance(n.body[0], ast.Expr)}
    tables = [n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "PATTERN"]
    inside = {id(n) for table in tables for n in ast.walk(table)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node, id(node) in inside


def names(source: str, room: str) -> tuple[list[str], list[str]]:
    """The op names in a module: those of its pattern, and the others."""
    found = [(n.value, inside) for n, inside in literals(ast.parse(source)) if is_name(str(n.value), room)]
    return [str(text) for text, inside in found if inside], [str(text) for text, inside in found if not inside]


def test_names_stand_in_patterns_only():
    patterns, others = {}, {}
    for file in FILES:
        patterns[file], others[file] = names((SRC / file).read_text(), file.partition("/")[0])
    print(f"{len(others.pop(TABLE))} names in {TABLE}", *(f"{len(p)} in {file}" for file, p in patterns.items() if p))
    assert {file: found for file, found in others.items() if found} == {}
    assert [file for file, found in patterns.items() if found and not file.startswith("fusion/")] == []


PATTERNS = [file for file in FILES if file.startswith("fusion/") and "\nPATTERN = " in (SRC / file).read_text()]


@pytest.mark.parametrize("file", PATTERNS)
def test_a_pattern_names_ops_that_exist_by_the_part_they_play(file):
    module = importlib.import_module(f"webpte.{file.removesuffix('.py').replace('/', '.')}")
    listed = [name for ops in module.PATTERN.values() for name in ops]
    assert set(listed) <= OPS and len(listed) == len(set(listed))
    assert set(module.ROLES.values()) == set(module.PATTERN)
    asked = {node.value for node, inside in literals(ast.parse((SRC / file).read_text())) if not inside}
    assert set(module.PATTERN) <= asked  # no part is left over


def test_passes_have_patterns():
    assert len(PATTERNS) >= 3


@pytest.mark.parametrize(
    ("source", "pattern", "others"),
    [
        ('PATTERN = {"a": ("aten.mm.default",)}', ["aten.mm.default"], []),
        ('VIEWS = {"aten.view_copy.default"}', [], ["aten.view_copy.default"]),
        ('def f(call):\n    """aten.mm.default"""\n    return call.name == "add"', [], ["add"]),
        ('x = f"aten.{kind}.Tensor"', [], ["aten."]),
        ('def f():\n    PATTERN = ("sym_size.int",)', [], ["sym_size.int"]),
        ('x = ("role", "aten", "webpte runs it")', [], []),
    ],
)
def test_names_would_be_noticed(source, pattern, others):
    assert names(source, "fusion") == (pattern, others)
