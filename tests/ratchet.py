"""Hold what earlier work has reached: counts over the source that may fall and not rise.

python -m tests.ratchet            # every count above its limit with its places, and exit code 1 if there is one
python -m tests.ratchet NAME...    # all places of these counts
python -m tests.ratchet --lower    # write the counts of today as limits, where they are lower
python -m tests.ratchet --features # files of src and web for each feature, from the trailers `Feature: NAME` of commits

`tests/ratchet.toml` has the limits, and `tests/page_lengths.py` those of words. A commit that raises one says in `why`
what the count bought.
"""

from __future__ import annotations

import argparse
import ast
import functools
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMITS = Path(__file__).with_name("ratchet.toml")
CORE = ("container/", "graph/", "wgsl/", "lowering/", "ops/", "fusion/", "plan/", "device/", "runtime/")

# Functions whose positional arguments are a list and not a signature.
LISTS = frozenset({"min", "max", "print", "join", "pack", "pack_into", "set", "chain", "zip", "reshape", "transpose"})

# Public in spite of their underscore: methods of named tuples, and functions of the standard library.
PUBLIC = frozenset({"_replace", "_asdict", "_fields", "_make", "_exit", "_getframe"})

# Errors of one cause: their class is the reason.
ONE_CAUSE = frozenset({
    "CancelledError", "ClosedError", "ContextFullError", "DeviceLost", "ForkedError", "OutOfMemory", "QueueFullError",
    "StaleGenerationError",
})  # fmt: skip

Places = Iterator[str]


@functools.cache
def modules() -> dict[str, str]:
    """Return the sources of the package's modules by name, such as `llm/model.py`."""
    package = ROOT / "src" / "webpte"
    return {
        path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))
    }


@functools.cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Return every node of the package's syntax trees with the name of its module."""
    return [(name, node) for name, source in modules().items() for node in ast.walk(ast.parse(source))]


def positional_calls() -> Places:
    """Calls with seven or more positional arguments."""
    for name, node in nodes():
        if isinstance(node, ast.Call) and len(node.args) >= 7:
            called = ast.unparse(node.func).split(".")[-1]
            if called not in LISTS and not any(isinstance(argument, ast.Starred) for argument in node.args):
                yield f"{name}:{node.lineno}: {called} ({len(node.args)})"


def dict_results() -> Places:
    """Functions whose result is a `dict[str, Any]`: fields without names or types."""
    for name, node in nodes():
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and "dict[str, Any]" in _result(node):
            yield f"{name}:{node.lineno}: {node.name}"


def _result(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return "" if node.returns is None else ast.unparse(node.returns)


def private_access() -> Places:
    """Attributes that begin with an underscore and that another module defines."""
    own: dict[str, set[str]] = defaultdict(set)
    for name, node in nodes():
        match node:
            case ast.FunctionDef(name=defined) | ast.AsyncFunctionDef(name=defined):
                own[name].add(defined)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=defined):
                own[name].add(defined)
            case ast.AnnAssign(target=ast.Name(id=defined)):
                own[name].add(defined)
    for name, node in nodes():
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr) and node.attr not in own[name] | PUBLIC:
            yield f"{name}:{node.lineno}: {ast.unparse(node)}"


def _raised() -> Iterator[tuple[str, ast.Call]]:
    """Yield the constructions of an error class of the package."""
    classes = {node.name for name, node in nodes() if name == "errors.py" and isinstance(node, ast.ClassDef)}
    classes -= {"Error", "ErrorFields", "Problem"} | ONE_CAUSE
    for name, node in nodes():
        if name != "errors.py" and isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in classes:
            yield name, node


def errors_without_code() -> Places:
    """Errors that name no reason: programs cannot match them."""
    for name, call in _raised():
        keywords = {keyword.arg for keyword in call.keywords}
        of_hub = ast.unparse(call.func).split(".")[-1] == "HubError" and len(call.args) > 1
        if not keywords & {"code", "reason", None} and not of_hub:
            yield f"{name}:{call.lineno}: {ast.unparse(call.func)}"


def typed_expectations() -> Places:
    """Errors whose message spells out "expected … got …" in place of the fields `expected` and `got`."""
    for name, call in _raised():
        for argument in call.args:
            if re.search(r"expected .*got ", ast.unparse(argument), re.DOTALL):
                yield f"{name}:{call.lineno}: {ast.unparse(call.func)}"
                break


def core_lines() -> Places:
    """Lines of Python from the container to the runtime."""
    for name, source in modules().items():
        if name.startswith(CORE):
            yield from (f"{name}:{number}" for number in range(1, source.count("\n") + 1))


def long_modules() -> Places:
    """Modules of more than 450 lines."""
    for name, source in modules().items():
        if (lines := source.count("\n")) > 450:
            yield f"{name}: {lines}"


COUNTS: dict[str, Callable[[], Places]] = {
    count.__name__: count
    for count in (
        positional_calls,
        dict_results,
        private_access,
        errors_without_code,
        typed_expectations,
        core_lines,
        long_modules,
    )
}


def features(revisions: str = "HEAD") -> dict[str, set[str]]:
    """Return the files of src and web that the commits of each feature touch, by the trailer `Feature`."""
    log = subprocess.run(
        ["git", "-C", str(ROOT), "log", "--format=%x00%(trailers:key=Feature,valueonly)", "--name-only", revisions],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    touched: dict[str, set[str]] = defaultdict(set)
    for commit in log.split("\0")[1:]:
        feature, *files = [line for line in commit.split("\n") if line] or [""]
        if feature and not feature.startswith(("src/", "web/", "tests/", "docs/")):
            touched[feature] |= {file for file in files if file.startswith(("src/", "web/src/", "web/pages/"))}
    return touched


def limits() -> dict[str, int]:
    """Return the limit of each count."""
    return {name: row["limit"] for name, row in tomllib.loads(LIMITS.read_text(encoding="utf-8")).items()}


def lower(counts: dict[str, int]) -> None:
    """Write the counts as limits where they are lower."""
    text = LIMITS.read_text(encoding="utf-8")
    for name, limit in limits().items():
        text = re.sub(rf"(\[{name}\]\nlimit = )\d+", rf"\g<1>{min(limit, counts[name])}", text)
    LIMITS.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.ratchet", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", choices=[[], *COUNTS], metavar="NAME")
    parser.add_argument("--lower", action="store_true")
    parser.add_argument("--features", action="store_true")
    chosen = parser.parse_args(arguments)
    if chosen.features:
        for feature, files in sorted(features().items()):
            print(f"{feature}: {len(files)} files", *sorted(files), sep="\n  ")
        return 0
    places = {name: list(COUNTS[name]()) for name in chosen.names or COUNTS}
    if chosen.lower:
        lower({name: len(lines) for name, lines in places.items()})
    failed = False
    for name, limit in limits().items():
        if name in places:
            over = len(places[name]) > limit
            failed |= over
            if chosen.names or (over and len(places[name]) < 2000):
                print(*places[name], sep="\n")
            print(f"{name}: {len(places[name])}, limit {limit}{' FAILED' if over else ''}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
