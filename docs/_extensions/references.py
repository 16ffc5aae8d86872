"""Pages made from the code at every build: commands from their parsers, errors from the tree of exceptions, the
configuration of the server from its fields.

A page contains `<!-- NAME -->` with its own name where the generated part goes, so there is no copy that could be out
of date.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import inspect
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast, get_args

import webpte
from webpte.cli import COMMANDS, load_command
from webpte.cli.serve import NO_OPTION
from webpte.errors import ErrorFields
from webpte.errors import _render as render
from webpte.serve.config import FIELDS

PACKAGE = Path(webpte.__file__).parent


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", _fill)
    app.connect("env-get-outdated", lambda *_: list(GENERATED))  # the code may have changed though the page did not
    app.connect("autodoc-process-signature", _without_constructor)
    return {"parallel_read_safe": True}


def _without_constructor(app: Any, what: str, name: str, *more: object) -> tuple[str, None] | None:
    """Hide constructors: functions return these objects, and callers do not build them."""
    return ("", None) if what == "class" else None


def _fill(app: Any, page: str, source: list[str]) -> None:
    if page in GENERATED:
        mark = f"<!-- {page} -->"
        if mark not in source[0]:
            raise ValueError(f"{page}.md has no {mark}")
        source[0] = source[0].replace(mark, "\n".join(GENERATED[page]()))


# ---------------------------------------------------------------- commands


def commands() -> Iterator[str]:
    for name, summary in COMMANDS.items():
        parser = load_command(name)[1]
        parser.formatter_class = functools.partial(argparse.HelpFormatter, width=88)
        yield f"(command-{name})=\n## webpte {name}\n\n{inspect.cleandoc(parser.description or summary)}\n"
        yield f"```text\n{parser.format_usage().strip()}\n```\n"
        yield "| argument | meaning |\n|---|---|"
        for action in parser._actions:
            yield f"| {_invocation(action)} | {_cell(_help(parser, action))} |"
        yield ""
        if parser.epilog:
            yield f"```text\n{parser.epilog.strip()}\n```\n"


def _invocation(action: argparse.Action) -> str:
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    value = ""
    if action.nargs != 0:
        value = f" {action.metavar or '|'.join(map(str, action.choices or ())) or action.dest.upper()}"
    return ", ".join(f"`{option}{_cell(value)}`" for option in action.option_strings)


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    return (action.help or "") % {**vars(action), "prog": parser.prog}


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")


# ---------------------------------------------------------------- errors


def errors() -> Iterator[str]:
    """Each class: where it is, what it means, and the messages it carries, `…` standing for numbers and names."""
    for module in PACKAGE.glob("**/errors.py"):
        importlib.import_module(_dotted(module))
    tree = list(_tree(webpte.Error))
    yield "```text"
    yield from (f"{'  ' * depth}{_public_name(error)}" for depth, error in tree)
    yield "```\n"
    messages = _messages({error.__name__ for _, error in tree})
    for _, error in tree:
        yield f"(error-{error.__name__})=\n## {error.__name__}\n\n`{_public_name(error)}`: {inspect.getdoc(error)}\n"
        yield f"Code: `{error.code}`.\n"
        if found := messages[error.__name__]:
            yield f"<details>\n<summary>{len(found)} messages</summary>\n"
            yield from (f"- {message}" for message in found)
            yield "\n</details>\n"


def _tree(error: type[webpte.Error], depth: int = 0) -> Iterator[tuple[int, type[webpte.Error]]]:
    yield depth, error
    for child in error.__subclasses__():
        yield from _tree(child, depth + 1)


def _public_name(error: type[Exception]) -> str:
    """Where users import it from: a package that exports it, else the package of its module."""
    homes = (package.__name__ for package in (webpte, webpte.llm) if error.__name__ in package.__all__)
    return f"{next(homes, error.__module__.rpartition('.')[0])}.{error.__name__}"


def _dotted(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)


def _messages(names: set[str]) -> dict[str, list[str]]:
    """Return message texts by class, from every `raise` in the package, as Markdown, with the reason of each."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in sorted(PACKAGE.glob("**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Raise(exc=ast.Call(func=ast.Name(id=name), args=args, keywords=keywords)):
                    fields = {one.arg: _text(one.value) for one in keywords if one.arg in ErrorFields.__annotations__}
                    if name == "wrong_argument":  # it makes an InputError of an argument, what was expected and a code
                        given = dict(zip(("argument", "expected", "got", "code"), map(_text, args), strict=False))
                        name, args, fields = "InputError", [], {"code": "wrong_type", **given, "got": "…"}
                    if name not in names:
                        continue
                    text = " ".join(render(_text(args[0]) if args else "", cast(ErrorFields, fields)).split())
                    reason = fields.get("code", "…").strip("…")
                    if text.strip("… "):
                        found[name].add(f"`` {text} ``" + f" (`{reason}`)" * bool(reason))
    return defaultdict(list, {name: sorted(texts) for name, texts in found.items()})


def _text(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(_text(part) for part in parts)
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
    return "…"


# ---------------------------------------------------------------- configuration of the server


def configuration() -> Iterator[str]:
    """Each field of the server's configuration: its type, its default, its flag and its effect."""
    yield "| name | type | default | effect |\n|---|---|---|---|"
    for name, one in FIELDS.items():
        flag = "" if name in NO_OPTION else f" (`--{name.replace('_', '-')}`)"
        kind = f"list of {_kind(str)}s" if isinstance(one.default, tuple) else _kind(one.annotation)
        default = json.dumps(one.default)
        yield f"| `{name}` | {kind} | `{default}` | {_cell(one.description or '')}{flag} |"


def _kind(annotation: Any) -> str:
    choices = [f'`"{value}"`' for value in get_args(annotation) if isinstance(value, str)]
    names = {str: "string", int: "integer", float: "number", bool: "boolean"}
    return ", ".join(choices) or names[annotation]


GENERATED = {"commands": commands, "errors": errors, "configuration": configuration}
