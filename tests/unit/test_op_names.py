"""Ops are named in `graph/names.py`, in the pattern of a pass, or as the op that a pass writes, nowhere else in these.

Nor are they where plans are made and work is counted, not even by parts of names. Whatever is known of an op is a fact
of the op: a list of names beside it would not know a user's.
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
OWN = (
    "webpte."  # `tests.support.harness.cases` changes the one of graph/names.py, so that delegates may name our own ops
)
FILES = sorted(path.relative_to(SRC).as_posix() for room in ("graph", "fusion") for path in (SRC / room).rglob("*.py"))
NAMESPACES = r"(aten|et_vk|webpte|dim_order_ops|executorch_prim|torchao|llama|sdpa|quantized_decomposed)\w*(\.|::)"
OPS = {*registered(), *(kernel for op in registered().values() for kernel in op.kernels)}


def is_name(text: str, room: str) -> bool:
    """Whether a string is an op's name or begins like one. In graph/, `add` may also be a function of expressions."""
    return bool(re.match(NAMESPACES, text)) or (text in OPS and (room == "fusion" or "." in text or ":" in text))


def is_own_op(node: ast.AST) -> bool:
    """Return whether a node is the name of a registered op that only webpte's passes write."""
    return isinstance(node, ast.Constant) and str(node.value).startswith(OWN) and node.value in OPS


def literals(tree: ast.Module) -> Iterator[tuple[ast.Constant, bool]]:
    """Strings that are not documentation, and whether they stand in the module's table PATTERN."""
    documented = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    docs = {id(n.body[0].value) for n in documented if n.body and isinstance(n.body[0], ast.Expr)}
    tables = [n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "PATTERN"]
    inside = {id(n) for table in tables for n in ast.walk(table)}
    inside |= {id(n) for table in tree.body if isinstance(table, ast.Assign) for n in ast.walk(table) if is_own_op(n)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node, id(node) in inside


def names(source: str, room: str) -> tuple[list[str], list[str]]:
    """Return the op names in a module: those of its pattern, and the others."""
    results = [(n.value, inside) for n, inside in literals(ast.parse(source)) if is_name(str(n.value), room)]
    return [str(text) for text, inside in results if inside], [str(text) for text, inside in results if not inside]


def test_passes_name_ops_only_in_patterns():
    patterns, others = {}, {}
    for file in FILES:
        patterns[file], others[file] = names((SRC / file).read_text(), file.partition("/")[0])
    print(f"{len(others.pop(TABLE))} names in {TABLE}", *(f"{len(p)} in {file}" for file, p in patterns.items() if p))
    assert {file: result for file, result in others.items() if result} == {}
    assert [file for file, result in patterns.items() if result and not file.startswith(("fusion/", TABLE))] == []


PATTERNS = [file for file in FILES if file.startswith("fusion/") and "\nPATTERN = " in (SRC / file).read_text()]


@pytest.mark.parametrize("file", PATTERNS)
def test_op_names_in_patterns_exist_by_role(file):
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
        ('FUSED = {"a": "webpte.linear", "b": "webpte.misspelt"}', ["webpte.linear"], ["webpte.misspelt"]),
        ('def f():\n    FUSED = "webpte.linear"', [], ["webpte.linear"]),
    ],
)
def test_names_would_be_noticed(source, pattern, others):
    assert names(source, "fusion") == (pattern, others)


PLAN = [path for path in sorted((SRC / "plan").glob("*.py")) if not path.name.endswith("_json.py")]  # which have keys
ASKING = ["debug/profile/runs.py", *(f"plan/{path.name}" for path in PLAN)]
BASES = {name.rpartition("::")[2].split(".")[-2 if "." in name else 0] for name in OPS} - {"webpte"}


def parts(source: str) -> list[str]:
    """Strings in a module that name an op, with or without namespace and overload."""
    texts = [str(node.value) for node, _ in literals(ast.parse(source))]
    return [text for text in texts if text in OPS or text.rpartition("::")[2].rpartition(".")[2] in BASES]


@pytest.mark.parametrize("file", ASKING)
def test_op_names_absent_from_modules_that_use_traits(file):
    assert parts((SRC / file).read_text()) == []


def test_parts_of_names_would_be_noticed():
    source = "def f(call):\n    'embedding'\n    return call.name in ('aten.mm.default', 'embedding', 'start')"
    assert parts(source) == ["aten.mm.default", "embedding"]
