"""A list of calls as Python writes them: `[weather(city="Bern", days=3)]`.

The calls are read here and not by Python's own parser: `from` and `class` are names of arguments, and values may be
those of JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..call_rules import json_value, refused, with_definitions
from ..call_values import (
    MAX_REFERENCES,
    PYTHON_WORDS,
    checked_call,
    json_types,
    open_quote,
    properties_of,
    referenced,
    required_of,
    type_of,
)
from . import CallRules, Schemas, ToolCall, ToolFormat, ToolShape, literal
from .list import separated

_NAME = re.compile(r"[^\W\d][\w.$-]*|\$[\w.$-]+")
_SPACE = re.compile(r"\s*")
_QUOTE = re.compile(r"\"\"\"|'''|\"|'")
_STRING = re.compile(r"([rRuU]?)(\"\"\"|'''|\"|')((?:[^\\]|\\.)*?)\2", re.DOTALL)
_NUMBER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|(?:0|[1-9](?:_?\d)*)?(?:\.\d*)?(?:[eE][+-]?\d+)?)(?![\w.])", re.ASCII)
_WORDS = {"true": True, "false": False, "null": None, **PYTHON_WORDS}
_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|x[0-9a-fA-F]{2}"
    r"|[0-7]{1,3}|.)",
    re.DOTALL,
)
_CHARACTERS = {
    **{"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", "a": "\a", "v": "\v"},
    **{"\\": "\\", "/": "/", "'": "'", '"': '"', "\n": ""},
}


class PythonShape(ToolShape):
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        reader = CallReader(inside)
        reader.expect("[")
        calls: list[ToolCall] = []
        while not reader.skip("]"):
            if calls:
                reader.expect(",")
                if reader.skip("]"):
                    break
            calls.append(reader.call())
        reader.expect_end()
        return calls

    def grammar(self, name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
        for each in (name, *properties_of(schema)):
            if not _NAME.fullmatch(each):
                raise refused(f"the model writes calls as in Python and cannot write the name {each[:80]!r}")
        required = required_of(schema)
        members = [(f"{n}=", _value(each, schema), n in required) for n, each in properties_of(schema).items()]
        return f'{literal(f"{name}(")} {rules.members(members, ", ")} ")"'

    def block(self, call: str, max_calls: int) -> str:
        return f'"[" {separated(call, ", ", max_calls)} "]"'

    def repeats(self, format: ToolFormat) -> bool:
        return False

    def open_string(self, text: str, opened: str) -> str:
        return open_quote(text, opened, _QUOTE)


def _value(schema: Any, root: Mapping[str, Any]) -> str:
    """Return the expression of an argument: JSON, or Python's words for booleans and null."""
    return " | ".join([json_value(with_definitions(schema, root)), *python_words(schema, root)])


def python_words(schema: Any, root: Mapping[str, Any]) -> list[str]:
    """Return Python's words for the booleans and null that a schema allows."""
    return [literal(word) for word, value in PYTHON_WORDS.items() if _allows(schema, value, root, 0)]


def _allows(schema: Any, value: bool | None, root: Mapping[str, Any], depth: int) -> bool:
    if not isinstance(schema, Mapping) or depth > MAX_REFERENCES:
        return schema is True
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(listed, list) and not any(each is value for each in listed):
        return False
    nested = [[referenced(schema["$ref"], root)]] if "$ref" in schema else []
    nested += [schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)]
    nested += [[each] for each in schema.get("allOf", ())]
    allowed = all(any(_allows(each, value, root, depth + 1) for each in choices) for choices in nested)
    return allowed and type_of(value) in json_types(schema, root)


class CallReader:
    """Reads `name(argument=value, ...)`, where values are literals of JSON or Python."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def call(self) -> ToolCall:
        name = self._name()
        self.expect("(")
        arguments: dict[str, Any] = {}
        while not self.skip(")"):
            if arguments:
                self.expect(",")
                if self.skip(")"):
                    break
            argument = self._name()
            self.expect("=")
            arguments[argument] = self._value()
        return checked_call(name, arguments)

    def skip(self, mark: str) -> bool:
        """Skip white space, and a mark if it follows. Return whether it did."""
        self._skip_space()
        if not self._text.startswith(mark, self._at):
            return False
        self._at += len(mark)
        return True

    def expect(self, mark: str) -> None:
        if not self.skip(mark):
            raise ValueError(f"not {mark!r}")

    def skip_line(self) -> bool:
        """Skip white space. Return whether it ended a line."""
        before = self._at
        self._skip_space()
        return "\n" in self._text[before : self._at]

    @property
    def ended(self) -> bool:
        return self._at == len(self._text)

    def expect_end(self) -> None:
        self._skip_space()
        if not self.ended:
            raise ValueError("more than calls")

    def _skip_space(self) -> None:
        match = _SPACE.match(self._text, self._at)
        assert match is not None  # it may be empty
        self._at = match.end()

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None and match.end() > self._at:
            self._at = match.end()
            return match
        return None

    def _name(self) -> str:
        self._skip_space()
        name = self._match(_NAME)
        if name is None:
            raise ValueError("not a name")
        return name[0]

    def _value(self) -> Any:
        self._skip_space()
        string = self._match(_STRING)
        if string is not None:
            return self._string(string)
        if self.skip("["):
            return self._items("]")
        if self.skip("("):
            return self._items(")")
        if self.skip("{"):
            return self._members()
        word = self._match(_NAME)
        if word is not None:
            if word[0] not in _WORDS:
                raise ValueError(f"{word[0]} is not a literal")
            return _WORDS[word[0]]
        return self._number()

    def _number(self) -> int | float:
        number = self._match(_NUMBER)
        if number is None:
            raise ValueError("not a value")
        digits = number[0].replace("_", "")
        if "x" in digits.lower():
            return int(digits, 16)
        if digits.lstrip("+-").isdigit():
            return int(digits)
        value = float(digits)
        if value in (float("inf"), float("-inf")):
            raise ValueError("too large")
        return value

    def _string(self, first: re.Match[str]) -> str:
        """Return a string, and those that follow it, as Python joins them."""
        string: re.Match[str] | None = first
        texts = []
        while string is not None:
            texts.append(string[3] if string[1] in ("r", "R") else _ESCAPE.sub(_character, string[3]))
            self._skip_space()
            string = self._match(_STRING)
        return "".join(texts)

    def _items(self, end: str) -> Any:
        """Return a list. A value alone in parentheses is that value."""
        items: list[Any] = []
        while not self.skip(end):
            if items and not self._comma(end):
                return items
            items.append(self._value())
            if end == ")" and len(items) == 1 and self.skip(end):
                return items[0]
        return items

    def _comma(self, end: str) -> bool:
        """Skip a comma, which may precede the end. Return whether another item follows."""
        self.expect(",")
        return not self.skip(end)

    def _members(self) -> Mapping[str, Any]:
        members: dict[str, Any] = {}
        while not self.skip("}"):
            if members and not self._comma("}"):
                return members
            key = self._value()
            if isinstance(key, (list, dict)):
                raise ValueError("not a key")
            self.expect(":")
            members[key if isinstance(key, str) else json.dumps(key)] = self._value()
        return members


def _character(match: re.Match[str]) -> str:
    """Return what an escape stands for. Backslashes before other characters stay, as in Python."""
    escape = match[0][1:]
    if escape[0] in "uUx" and len(escape) > 1:
        codes = [int(part, 16) for part in re.findall(r"(?<=[uUx])[0-9a-fA-F]+", escape)]
        if len(codes) == 2:  # a surrogate pair, as JSON writes characters
            return chr(0x10000 + ((codes[0] & 0x3FF) << 10) + (codes[1] & 0x3FF))
        return chr(codes[0])
    if escape[0] in "01234567":
        return chr(int(escape, 8))
    return _CHARACTERS.get(escape, match[0])


SHAPE = PythonShape()
