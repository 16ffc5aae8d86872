"""What is known about ops is said where they are registered: whoever asks names none of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import webpte
from webpte.lowering import registered

SRC = Path(webpte.__file__).parent
PLAN = [path for path in sorted((SRC / "plan").glob("*.py")) if not path.name.endswith("_json.py")]  # which have keys
ASKING = ["tools/profile/work.py", *(f"plan/{path.name}" for path in PLAN)]


def literals(tree: ast.AST) -> Iterator[str]:
    """Strings of a module that are no documentation."""
    documented = [n for n in ast.walk(tree) if isinstance(n, (ast.Module, ast.ClassDef, ast.FunctionDef))]
    docs = {id(n.body[0].value) for n in documented if n.body and isinstance(n.body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value


def named(text: str) -> bool:
    """Whether a string is the name of an op, with or without namespace and overload."""
    whole = set(registered()) | {kernel for op in registered().values() for kernel in op.kernels}
    bases = {name.rpartition("::")[2].split(".")[-2 if "." in name else 0] for name in whole}
    return text in whole or text.rpartition("::")[2].rpartition(".")[2] in bases - {"webpte"}


@pytest.mark.parametrize("path", ASKING)
def test_no_op_is_named(path):
    assert [text for text in literals(ast.parse((SRC / path).read_text())) if named(text)] == []


def test_names_would_be_noticed():
    source = "def f(call):\n    'embedding'\n    return call.name in ('aten.mm.default', 'embedding', 'start')"
    assert [text for text in literals(ast.parse(source)) if named(text)] == ["aten.mm.default", "embedding"]
