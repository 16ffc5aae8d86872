"""Modules of `src` use the public names of each other: a name with an underscore belongs to its module."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).parents[2] / "src" / "webpte"
NAMEDTUPLE = {"_replace", "_asdict", "_fields", "_make"}  # public, in spite of the underscore

# Private names of other packages that are used, by module, each with the reason. Ours are never exceptions.
FOREIGN = {
    "cli/completion.py": {"_actions"},  # argparse lists the options of a parser nowhere else
    "cli/generation_options.py": {"_ActionsContainer"},  # argparse has no public name for parsers and their groups
    "cli/interrupts.py": {"_exit"},  # of os, public
    "cli/terminal.py": {"_live_render"},  # rich has no public way to redraw after the terminal was resized
    "debug/selftest.py": {"_exit"},  # of os, public
    "debug/compare/executorch.py": {"_load_for_executorch"},  # the executorch wheel's C++ runtime
    "device/process_events.py": {"_exit", "_getframe", "_helpers", "_the_instance"},  # wgpu must not run in a fork
    "device/recording.py": {"_internal", "_poll_wait", "_parser", "_declarations"},  # the C functions of wgpu and cffi
    "export/quantized_modules.py": {"_quant_patterns_and_replacements"},  # executorch registers ops when it is imported
    "runtime/torch_kernels.py": {"_ops", "_schema"},  # torch has no public name for the schema of an op
    "serve/running.py": {"_exit"},  # of os, public
    "serve/task_workers.py": {"_exit"},  # of os, public
    "serve/worker.py": {"_exit"},  # of os, public
}


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NAMEDTUPLE


def is_one_of(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def own_names(tree: ast.Module) -> set[str]:
    """Return the private names that a module defines: functions, fields of classes, and attributes of `self`."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {node.attr} if is_one_of(node.value, "self", "cls") else set()
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def foreign_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the name of each private name that a module reads or writes and does not define.

    A class may use the private names of its bases through `self`.
    """
    own = own_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr) and node.attr not in own:
            if ast.unparse(node.value) not in ("self", "cls", "super()"):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if private(alias.name))
        elif isinstance(node, ast.Call) and is_one_of(node.func, "getattr", "setattr", "hasattr", "delattr"):
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str) and private(name.value):
                yield from [(node.lineno, name.value)] if name.value not in own else []


def test_private_names_are_used_only_in_their_module():
    problems, used = [], {module: set[str]() for module in FOREIGN}
    for path in sorted(SRC.rglob("*.py")):
        module = path.relative_to(SRC).as_posix()
        for line, name in foreign_names(ast.parse(path.read_text(encoding="utf-8"))):
            if name in FOREIGN.get(module, ()):
                used[module].add(name)
            else:
                problems.append(f"{module}:{line}: {name}")
    assert not problems, "give each a public name, or move the code:\n" + "\n".join(problems)
    assert used == FOREIGN, "exceptions that are no longer needed"


def test_foreign_private_names_are_found_in_every_form():
    code = """
from ..other import _helper
class Mine:
    def __init__(self, other):
        self._own = other
        other._set = 1
        print(other._own, self._base, other._read, getattr(other, "_got"), other._replace(a=1), other.__dict__)
"""
    assert [name for _, name in foreign_names(ast.parse(code))] == ["_helper", "_set", "_read", "_got"]


def test_loggers_have_the_names_of_their_modules():
    """Users configure the loggers under `webpte`; those of other packages are only configured."""
    loggers = set[tuple[str, str]]()
    for path in sorted(SRC.rglob("*.py")):
        nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        loggers |= {(path.name, ast.unparse(n)) for n in nodes if isinstance(n, ast.Assign) and is_logger(n.value)}
    libraries = ("telemetry.py", "logger = logging.getLogger(name)")
    root = ("suppress_output.py", "root = logging.getLogger()")
    assert {each for each in loggers if each[1] != "logger = logging.getLogger(__name__)"} == {libraries, root}


def is_logger(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "getLogger"
