"""Hash what an export depends on: definitions, followed by name from the function that builds it.

A definition is a function, a class or an assignment at the top of a file of these tests. Its hash covers every
definition that it names, in its file or imported from another file of these tests, and the statements that run when
those files are imported. Comments, docstrings, annotations of functions, names of local variables, decorators of the
function itself and the places of definitions are not covered.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


def definitions_hash(*roots: tuple[Path, str]) -> str:
    """Return the hash of definitions, each a file and a name, and of everything that they name."""
    pending: list[tuple[Path, str | None]] = list(roots)
    visited: set[tuple[Path, str | None]] = set()
    texts: set[str] = set()
    while pending:
        path, name = one = pending.pop()
        if one in visited:
            continue
        visited.add(one)
        pending.append((path, ""))  # what runs at import
        text, names = _module(path).definition(name, (path, name) in roots)
        texts.add(text)
        pending += _module(path).resolved(names)
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()


def defines(path: Path, name: str) -> bool:
    return name in _module(path).statements


@cache
def source_hash(path: Path) -> str:
    """Return the hash of all definitions of one file, without those that it imports from files beside it."""
    return hashlib.sha256(_module(path).definition(None)[0].encode()).hexdigest()


@cache
def _module(path: Path) -> _Module:
    return _Module(path)


class _Module:
    """The statements of a file by the name that they define; those that define none are named ""."""

    def __init__(self, path: Path) -> None:
        self.path = path
        tree = ast.parse(path.read_bytes())
        self.statements: dict[str, list[ast.stmt]] = {"": []}
        for statement in tree.body:
            if not _is_skipped(statement):
                for name in _defined(statement):
                    self.statements.setdefault(name, []).append(statement)
        self.imports = {
            alias.asname or alias.name: (node, alias)
            for node in ast.walk(tree)
            if is_ours(node) and isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    @cache  # noqa: B019  # modules are kept
    def definition(self, name: str | None, is_root: bool = False) -> tuple[str, _Normalizer]:
        """Return the normalized text of a definition, or of all, and the names that it uses."""
        normalizer = _Normalizer()
        if name is None:
            statements = [one for group in self.statements.values() for one in group]
        elif name in self.statements:
            statements = self.statements[name]
        elif name in self.imports:
            normalizer.used.add(name)
            return f"{name} = {self.imports[name][1].name}", normalizer
        else:
            raise LookupError(f"{self.path} has no definition of {name}")
        nodes = []
        for node in copy.deepcopy(statements):
            if is_root and isinstance(node, ast.FunctionDef):
                node.decorator_list = []
            if (normalized := normalizer.visit(node)) is not None:
                nodes.append(normalized)
        return "\n".join(map(ast.dump, nodes)), normalizer

    def resolved(self, names: _Normalizer) -> Iterator[tuple[Path, str | None]]:
        """Yield the definitions of these tests that have the names, None for all of a file."""
        for used in sorted(names.used):
            if used in self.statements:
                yield self.path, used
            elif used in self.imports:
                yield self._target(used)
            elif used == "globals":
                yield self.path, None
        for base, attribute in names.attributes:
            if base in self.statements:
                yield self.path, base
            elif base in self.imports:
                path, name = self._target(base)
                yield path, attribute if name is None else name

    def _target(self, name: str) -> tuple[Path, str | None]:
        """Return the file of an import and the name in it, or None for a module."""
        node, alias = self.imports[name]
        base = self.path.parents[node.level - 1] if node.level else ROOT
        base = base.joinpath(*(node.module or "").split("."))
        for place, inside in ((base / alias.name, None), (base, alias.name)):
            for file in (place.with_suffix(".py"), place / "__init__.py"):
                if file.is_file():
                    return file, inside
        raise LookupError(f"{self.path} imports {alias.name}, which no file of these tests defines")


def is_ours(statement: ast.AST) -> bool:
    """Return whether a statement imports from files beside it or from these tests."""
    if not isinstance(statement, ast.ImportFrom):
        return False
    return statement.level > 0 or (statement.module or "").partition(".")[0] == "tests"


def _is_skipped(statement: ast.stmt) -> bool:
    """Return whether a statement does nothing when the file is imported to export something."""
    match statement:
        case ast.If(test=ast.Name("TYPE_CHECKING")) | ast.If(test=ast.Compare(left=ast.Name("__name__"))):
            return True
        case ast.ImportFrom(module="__future__") | ast.Expr(value=ast.Constant()):
            return True
    return is_ours(statement)


def _defined(statement: ast.stmt) -> list[str]:
    match statement:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [statement.name]
        case ast.Import() | ast.ImportFrom():
            return [(alias.asname or alias.name).partition(".")[0] for alias in statement.names]
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
            return list(_bound([statement])) or [""]
    return [""]


def _bound(nodes: Iterable[ast.AST]) -> dict[str, bool]:
    """Return the names that nodes bind in their own scope, in order, and whether each is a variable."""
    names: dict[str, bool] = {}
    elsewhere: set[str] = set()
    for node in _scope(nodes):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names[name] = False
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                names[name] = False
            case ast.Name(id=name, ctx=ast.Store()):
                names.setdefault(name, True)
            case ast.Global(names=declared) | ast.Nonlocal(names=declared):
                elsewhere.update(declared)
    return {name: is_variable for name, is_variable in names.items() if name not in elsewhere}


def _scope(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield nodes and all that is inside, without what functions, classes and comprehensions bind."""
    for node in nodes:
        yield node
        if isinstance(node, ast.comprehension):
            yield from _scope([node.iter, *node.ifs])
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            yield from _scope(ast.iter_child_nodes(node))


class _Normalizer(ast.NodeTransformer):
    """Drop what has no effect, number local variables, and collect the names that are not local."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()  # of names that are not local
        self.scopes: list[tuple[bool, dict[str, str]]] = []  # whether it is that of a class, and its names
        self.count = 0

    def visit(self, node: Any) -> Any:
        match node:
            case ast.Expr() | ast.If() if _is_skipped(node):
                return None
            case ast.Global() | ast.Nonlocal():  # the names of variables say it
                return None
            case ast.ImportFrom() if is_ours(node):
                return ast.ImportFrom(None, node.names, 0)
            case ast.AnnAssign() if not self.scopes or not self.scopes[-1][0]:  # no field of a class
                return self.visit(ast.Assign([node.target], node.value)) if node.value else None
            case ast.AnnAssign():
                node.annotation = ast.Constant(ast.unparse(node.annotation))
            case ast.Name():
                if (name := self._local(node.id)) is None:
                    self.used.add(node.id)
                node.id = name or node.id
            case ast.Attribute(value=ast.Name(id=name)) if self._local(name) is None:
                self.attributes.add((name, node.attr))
                return node
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                return self._function(node)
            case ast.ClassDef(body=body):
                node.body = []
                self.generic_visit(node)  # bases and decorators
                node.body = self._inside(_bound(body), body, of_class=True)
                return node
            case ast.GeneratorExp() | ast.ListComp() | ast.SetComp() | ast.DictComp():
                outermost = self.visit(node.generators[0].iter)
                node.generators[0].iter = ast.Constant(None)
                self._inside(_bound([one.target for one in node.generators]), ast.iter_child_nodes(node))
                node.generators[0].iter = outermost
                return node
        return self.generic_visit(node)

    def _function(self, node: Any) -> Any:
        body = node.body if isinstance(node.body, list) else [node.body]
        parameters = [one for one in ast.walk(node.args) if isinstance(one, ast.arg)]
        for parameter in parameters:
            parameter.annotation = None
        names = _bound(body) | {parameter.arg: False for parameter in parameters}
        node.body, node.returns = [], None
        self.generic_visit(node)  # defaults and decorators
        node.body = self._inside(names, body)
        return node

    def _inside(self, names: dict[str, bool], nodes: Iterable[ast.AST], of_class: bool = False) -> list[Any]:
        """Visit nodes in a scope of these names; variables, except those of a class, become numbers."""
        self.count += len(names)
        numbers = {name: f"${self.count - i}" for i, name in enumerate(names)}
        renamed = {name: numbers[name] if names[name] and not of_class else name for name in names}
        self.scopes.append((of_class, renamed))
        visited = [kept for node in nodes if (kept := self.visit(node)) is not None]
        self.scopes.pop()
        return visited

    def _local(self, name: str) -> str | None:
        for depth, (of_class, names) in enumerate(reversed(self.scopes)):
            if name in names and (not of_class or depth == 0):
                return names[name]
        return None
