"""How a model asks for tools to be called, and the calls that a text asks for."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, get_args

from ..errors import FormatError, InputError

# object: calls as JSON objects, one behind the other; list: as a JSON list of them; python: as a list of Python calls;
# parameters: one call as <function=name>, with a <parameter=name> of text for each argument.
Shape = Literal["object", "list", "python", "parameters"]


@dataclass(frozen=True)
class ToolFormat:
    """How a family of models writes calls: `begin`, something of a `shape`, `end`; several may follow each other."""

    shape: Shape
    begin: str
    end: str = ""  # empty: a call goes on to the end of the answer, or to the next
    bare: bool = False  # an answer that begins with `{` or `[` is a call without `begin`, too
    name: str = "name"  # of a call, in an object
    arguments: str = "arguments"  # in an object

    @classmethod
    def from_json(cls, found: Any, where: str) -> ToolFormat:
        """What `to_json` gave, from a file that is named in errors."""
        kinds = {"bare": bool} | {item.name: str for item in fields(cls) if item.name != "bare"}
        if not isinstance(found, dict) or not found.get("begin"):
            raise FormatError(f"{where}: tool_format is no object with a begin", code="missing_field")
        if odd := [name for name, value in found.items() if not isinstance(value, kinds.get(name, ()))]:
            raise FormatError(
                f"{where}: {', '.join(odd)} of tool_format cannot be; known are {', '.join(kinds)}",
                code="invalid_field",
            )
        if found.get("shape") not in (shapes := get_args(Shape)):
            raise FormatError(
                f"{where}: the shape of tool_format is {found.get('shape')!r}, not one of {', '.join(shapes)}",
                code="unknown_kind",
            )
        return cls(**found)

    def to_json(self) -> dict[str, str | bool]:
        return asdict(self)


@dataclass(frozen=True)
class ToolCall:
    """What a model wants to be called."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Parsed(NamedTuple):
    """A text without the calls that it asks for, and these."""

    text: str
    calls: tuple[ToolCall, ...]


def parse_tool_calls(text: str, format: ToolFormat) -> Parsed:
    """The calls in a model's answer, special tokens included, and what it says besides.

    What is not written as the format says is no call: it stays in the text, for models write what they like.
    """
    if not isinstance(text, str):
        raise InputError(f"text is a str, not {type(text).__name__}", code="wrong_type")
    if not isinstance(format, ToolFormat):
        raise InputError(f"format is a ToolFormat, not {type(format).__name__}", code="wrong_type")
    rest: list[str] = []
    calls: list[ToolCall] = []
    for outside, inside in _blocks(text, format):
        rest.append(outside)
        found = _calls(inside, format) if inside is not None else None
        if found is None and inside is not None:
            begun = format.begin if format.begin in text else ""
            rest.append(f"{begun}{inside}{format.end}")
        calls += found or ()
    said = "".join(rest)
    return Parsed(said.strip() if calls else said, tuple(calls))


def _blocks(text: str, format: ToolFormat) -> Iterator[tuple[str, str | None]]:
    """Pieces of a text, each with what stands between the markers behind it; None behind the last."""
    if format.bare and text.lstrip().startswith(("{", "[")):
        yield "", text
        return
    while True:
        outside, begun, rest = text.partition(format.begin)
        if not begun:
            yield outside, None
            return
        inside, ended, text = rest.partition(format.end or format.begin)
        if format.end and not ended:  # it was cut short, and half a call is none
            yield outside + begun + rest, None
            return
        yield outside, inside
        if not format.end:
            text = ended + text


def _calls(inside: str, format: ToolFormat) -> list[ToolCall] | None:
    """What stands between the markers; None if it is something else than calls."""
    try:
        if format.shape == "python":
            return _python_calls(inside)
        if format.shape == "parameters":
            return _parameter_calls(inside)
        found = _objects(inside) if format.shape == "object" else json.loads(inside)
        return [_object_call(entry, format) for entry in found] if isinstance(found, list) else None
    except (ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        return None


def _objects(inside: str) -> list[Any]:
    """Values of JSON, one behind the other; some put semicolons between them."""
    found, at, decoder = [], 0, json.JSONDecoder()
    while rest := inside[at:].lstrip(" \t\r\n;"):
        value, length = decoder.raw_decode(rest)
        found.append(value)
        at = len(inside) - len(rest) + length
    return found


def _object_call(entry: Any, format: ToolFormat) -> ToolCall:
    if not isinstance(entry, dict):
        raise ValueError("no call")
    arguments = entry.get(format.arguments, {})
    if isinstance(arguments, str):  # some write them as JSON in a text
        arguments = json.loads(arguments)
    if not isinstance(entry[format.name], str) or not isinstance(arguments, dict):
        raise ValueError("no call")
    return ToolCall(entry[format.name], arguments)


def _python_calls(inside: str) -> list[ToolCall]:
    """`[name(argument=value, ...), ...]`, values being literals."""
    tree = ast.parse(inside.strip(), mode="eval").body
    if not isinstance(tree, ast.List):
        raise ValueError("no list")
    calls = []
    for node in tree.elts:
        if not isinstance(node, ast.Call) or node.args or any(word.arg is None for word in node.keywords):
            raise ValueError("no call")
        arguments = {str(word.arg): _literal(word.value) for word in node.keywords}
        calls.append(ToolCall(ast.unparse(node.func), arguments))
    return calls


def _literal(node: ast.expr) -> Any:
    """A value as Python or as JSON writes it."""
    words = {"true": True, "false": False, "null": None}
    if isinstance(node, ast.Name) and node.id in words:
        return words[node.id]
    if isinstance(node, ast.List):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [ast.literal_eval(key) if key is not None else None for key in node.keys]
        return dict(zip(keys, map(_literal, node.values), strict=True))
    return ast.literal_eval(node)


_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


def _parameter_calls(inside: str) -> list[ToolCall]:
    """Arguments are texts; those that read as JSON are what it says."""
    found = _FUNCTION.fullmatch(inside)
    if found is None or _PARAMETER.sub("", found[2]).strip():
        raise ValueError("no call")
    return [ToolCall(found[1].strip(), {name: _read(text) for name, text in _PARAMETER.findall(found[2])})]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
