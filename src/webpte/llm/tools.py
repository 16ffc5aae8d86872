"""Tool calls: the format in which a model writes them, and their parser."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, NamedTuple, get_args

from ..errors import FormatError, InputError

# object: JSON objects, one after the other; list: a JSON list of objects; keyed: a JSON list of {name: arguments};
# named: one call as its name, the string `arguments`, and a JSON object; python: a list of Python calls;
# lines: Python calls, one per line; parameters: one call as <function=name> with a <parameter=name> element for each
# argument; unquoted: one call as call:name{key:value}, where strings are in QUOTE.
Shape = Literal["object", "list", "keyed", "named", "python", "lines", "parameters", "unquoted"]
QUOTE = '<|"|>'
UNQUOTED_KEY = re.compile(r"[^\s:,{}\[\]<>\"]+")


@dataclass(frozen=True)
class ToolFormat:
    """How a family of models writes calls: `begin`, calls of a `shape`, `end`. Such blocks may repeat."""

    shape: Shape
    begin: str
    end: str = ""  # empty: a call extends to the next one, or to the end of the text
    bare: bool = False  # a text that starts with `{` or `[` is a call without `begin`
    name: str = "name"  # of a call, in an object
    arguments: str = "arguments"  # in an object; of the shape `named`, what separates the name from the arguments

    @classmethod
    def from_json(cls, value: Any, where: str) -> ToolFormat:
        """Return the format that `to_json` has written. `where` names the file in errors."""
        kinds = {"bare": bool} | {item.name: str for item in fields(cls) if item.name != "bare"}
        argument = f"{where}: tool_format"
        if not isinstance(value, dict) or not value.get("begin"):
            raise FormatError(
                argument=argument, expected="an object with begin", got=type(value).__name__, code="missing_field"
            )
        if invalid := [name for name, field in value.items() if not isinstance(field, kinds.get(name, ()))]:
            raise FormatError(
                argument=argument,
                expected=f"the fields {', '.join(kinds)}, of which bare is a boolean and the others are strings",
                got=", ".join(invalid),
                code="invalid_field",
            )
        if value.get("shape") not in (shapes := get_args(Shape)):
            raise FormatError(
                argument=f"{argument}.shape",
                expected=f"one of {', '.join(shapes)}",
                got=repr(value.get("shape")),
                code="unknown_kind",
            )
        return cls(**value)

    def to_json(self) -> dict[str, str | bool]:
        return asdict(self)


@dataclass(frozen=True)
class ToolCall:
    """A call that a model asks for."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


class ParsedText(NamedTuple):
    """A text without its tool calls, and the calls."""

    text: str
    calls: tuple[ToolCall, ...]


def parse_tool_calls(text: str, format: ToolFormat) -> ParsedText:
    """Return the tool calls in a generated text, which includes special tokens, and the rest of the text.

    A malformed call stays in the text.
    """
    for argument, value, kind in (("text", text, str), ("format", format, ToolFormat)):
        if not isinstance(value, kind):
            raise InputError(
                argument=argument, expected=f"a {kind.__name__}", got=type(value).__name__, code="wrong_type"
            )
    rest: list[str] = []
    calls: list[ToolCall] = []
    for outside, inside in _blocks(text, format):
        rest.append(outside)
        parsed = _calls(inside, format) if inside is not None else None
        if parsed is None and inside is not None:
            begin = format.begin if format.begin in text else ""
            rest.append(f"{begin}{inside}{format.end}")
        calls += parsed or ()
    outer = "".join(rest)
    return ParsedText(outer.strip() if calls else outer, tuple(calls))


def _blocks(text: str, format: ToolFormat) -> Iterator[tuple[str, str | None]]:
    """Yield pieces of a text, each with the content of the block after it; None after the last piece."""
    if format.bare and text.lstrip().startswith(("{", "[")):
        yield "", text
        return
    while True:
        outside, begin, rest = text.partition(format.begin)
        if not begin:
            yield outside, None
            return
        inside, end, text = rest.partition(format.end or format.begin)
        if format.end and not end:  # the call is truncated
            yield outside + begin + rest, None
            return
        yield outside, inside
        if not format.end:
            text = end + text


def _calls(inside: str, format: ToolFormat) -> list[ToolCall] | None:
    """Return the calls of a block; None if its content is something else."""
    try:
        if format.shape == "python":
            return _listed_calls(inside)
        if format.shape == "lines":
            return _python_calls([_expression(line) for line in ast.parse(inside.strip()).body])
        if format.shape == "parameters":
            return _parameter_calls(inside)
        if format.shape == "unquoted":
            return [_unquoted_call(inside)]
        if format.shape == "named":
            return [_named_call(inside, format)]
        entries = _objects(inside) if format.shape == "object" else json.loads(inside)
        if not isinstance(entries, list):
            return None
        if format.shape == "keyed":
            return [_checked_call(name, arguments) for entry in entries for name, arguments in entry.items()]
        return [_object_call(entry, format) for entry in entries]
    except (ValueError, SyntaxError, KeyError, TypeError, AttributeError, RecursionError, MemoryError):
        return None


def _objects(inside: str) -> list[Any]:
    """Return JSON values that follow each other. Some models separate them by semicolons."""
    values, decoder, at = [], json.JSONDecoder(), 0
    while (at := _after_separators(inside, at)) < len(inside):
        value, at = decoder.raw_decode(inside, at)
        values.append(value)
    return values


def _after_separators(text: str, at: int) -> int:
    match = _SEPARATORS.match(text, at)
    assert match is not None  # it may be empty
    return match.end()


def _object_call(entry: Any, format: ToolFormat) -> ToolCall:
    if not isinstance(entry, dict):
        raise ValueError("not a call")
    arguments = entry.get(format.arguments, {})
    if isinstance(arguments, str):  # some models write them as JSON in a string
        arguments = json.loads(arguments)
    return _checked_call(entry[format.name], arguments)


def _named_call(inside: str, format: ToolFormat) -> ToolCall:
    name, _, arguments = inside.partition(format.arguments)
    return _checked_call(name.strip(), json.loads(arguments))


def _checked_call(name: Any, arguments: Any) -> ToolCall:
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError("not a call")
    return ToolCall(name, arguments)


def _listed_calls(inside: str) -> list[ToolCall]:
    """Parse `[name(argument=value, ...), ...]`."""
    tree = ast.parse(inside.strip(), mode="eval").body
    if not isinstance(tree, ast.List):
        raise ValueError("not a list")
    return _python_calls(tree.elts)


def _expression(statement: ast.stmt) -> ast.expr:
    if not isinstance(statement, ast.Expr):
        raise ValueError("not a call")
    return statement.value


def _python_calls(nodes: Iterable[ast.expr]) -> list[ToolCall]:
    """Return each `name(argument=value, ...)`, where values are literals."""
    calls = []
    for node in nodes:
        if not isinstance(node, ast.Call) or node.args or any(word.arg is None for word in node.keywords):
            raise ValueError("not a call")
        arguments = {str(word.arg): _literal(word.value) for word in node.keywords}
        calls.append(ToolCall(ast.unparse(node.func), arguments))
    return calls


def _literal(node: ast.expr) -> Any:
    """Return the value of a literal of Python or JSON."""
    words = {"true": True, "false": False, "null": None}
    if isinstance(node, ast.Name) and node.id in words:
        return words[node.id]
    if isinstance(node, ast.List):
        return [_literal(item) for item in node.elts]
    if isinstance(node, ast.Dict):
        keys = [ast.literal_eval(key) if key is not None else None for key in node.keys]
        return dict(zip(keys, map(_literal, node.values), strict=True))
    return ast.literal_eval(node)


_SEPARATORS = re.compile(r"[ \t\r\n;]*")
_FUNCTION = re.compile(r"\s*<function=([^>\n]+)>(.*)</function>\s*", re.DOTALL)
_PARAMETER = re.compile(r"\s*<parameter=([^>\n]+)>\n?(.*)", re.DOTALL)


def _parameter_calls(inside: str) -> list[ToolCall]:
    """Parse one call. Arguments that are valid JSON are JSON values, others strings."""
    match = _FUNCTION.fullmatch(inside)
    if match is None:
        raise ValueError("not a call")
    *written, rest = match[2].split("</parameter>")
    parameters = [parameter for text in written if (parameter := _PARAMETER.fullmatch(text)) is not None]
    if rest.strip() or len(parameters) < len(written):
        raise ValueError("not a call")
    arguments = {parameter[1]: _read(parameter[2].removesuffix("\n")) for parameter in parameters}
    return [ToolCall(match[1].strip(), arguments)]


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


_SPACE = re.compile(r"\s*")
_UNQUOTED_CALL = re.compile(r"\s*call:([^\s{]+)(?=\{)")


def _unquoted_call(inside: str) -> ToolCall:
    """Parse `call:name{key:value,...}`."""
    match = _UNQUOTED_CALL.match(inside)
    if match is None:
        raise ValueError("not a call")
    arguments, at = _unquoted_value(inside, match.end())
    if inside[at:].strip():
        raise ValueError("not a call")
    return _checked_call(match[1], arguments)


def _unquoted_value(text: str, at: int) -> tuple[Any, int]:
    """Return the value at a position, and the position after it."""
    at = _after_space(text, at)
    if text.startswith(QUOTE, at):
        begin = at + len(QUOTE)
        end = text.index(QUOTE, begin)
        return text[begin:end], end + len(QUOTE)
    if text.startswith("None", at):  # in conversations, templates of before July 2026 write null so
        return None, at + len("None")
    if text[at : at + 1] not in ("{", "["):
        return json.JSONDecoder().raw_decode(text, at)
    return _unquoted_object(text, at + 1) if text[at] == "{" else _unquoted_list(text, at + 1)


def _unquoted_object(text: str, at: int) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}
    while text[(at := _after_space(text, at)) : at + 1] != "}":
        at = _after(",", text, at) if members else at
        key, at = _unquoted_key(text, _after_space(text, at))
        members[key], at = _unquoted_value(text, _after(":", text, at))
    return members, at + 1


def _unquoted_list(text: str, at: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while text[(at := _after_space(text, at)) : at + 1] != "]":
        item, at = _unquoted_value(text, _after(",", text, at) if items else at)
        items.append(item)
    return items, at + 1


def _unquoted_key(text: str, at: int) -> tuple[str, int]:
    """Return a key, and the position after it. A key may be in QUOTE, as transformers allows."""
    if text.startswith(QUOTE, at):
        return _unquoted_value(text, at)
    match = UNQUOTED_KEY.match(text, at)
    if match is None:
        raise ValueError("not a key")
    return match[0], match.end()


def _after(mark: str, text: str, at: int) -> int:
    at = _after_space(text, at)
    if not text.startswith(mark, at):
        raise ValueError(f"not {mark!r}")
    return at + len(mark)


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None  # it may be empty
    return match.end()
