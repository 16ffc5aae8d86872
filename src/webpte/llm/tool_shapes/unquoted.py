"""One call as `call:name{key:value}`: keys have no quotes, and strings are in QUOTE."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..call_rules import escaped, json_value, limit_of, refused
from ..call_values import DEFINITIONS, TYPES, checked_call, read_json_at, referenced
from . import CallRules, Schemas, ToolCall, ToolFormat, ToolShape, literal

QUOTE = '<|"|>'
UNQUOTED_KEY = re.compile(r"[^\s:,{}\[\]<>\"]+")
_SPACE = re.compile(r"\s*")
_CALL = re.compile(r"\s*call:([^\s{]+)(?=\{)")
# Keywords without effect on a value. `format` is one by default, since JSON Schema 2019-09.
_ANNOTATIONS = frozenset(
    [
        "title",
        "description",
        "default",
        "examples",
        "deprecated",
        "readOnly",
        "writeOnly",
        "format",
        "$comment",
        "$schema",
        "$id",
    ]
) | set(DEFINITIONS)
_NUMERIC = frozenset(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
# The keywords that each type may have; those of other types are refused.
_KEYWORDS: Mapping[str, frozenset[str]] = {
    "string": frozenset(("minLength", "maxLength")),
    "number": _NUMERIC,
    "integer": _NUMERIC,
    "boolean": frozenset(),
    "null": frozenset(),
    "array": frozenset(("items", "minItems", "maxItems")),
    "object": frozenset(("properties", "required", "additionalProperties")),
}
_ANY_KEY = r"/[A-Za-z_][A-Za-z0-9_.\-]*/"


class UnquotedShape(ToolShape):
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        match = _CALL.match(inside)
        if match is None:
            raise ValueError("not a call")
        arguments, at = _value(inside, match.end())
        if inside[at:].strip():
            raise ValueError("more than a call")
        return [checked_call(match[1], arguments)]

    def grammar(self, name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
        """Strings do not contain the end of a call. Keys are in the order in which templates sort them."""
        return f"{literal(f'call:{name}')} {_Unquoted(schema, rules).expression(schema)}"

    def open_string(self, text: str, opened: str) -> str:
        return QUOTE if bool(opened) != bool(text.count(QUOTE) % 2) else ""


# -- parser -----------------------------------------------------------------------------------------------------------


def _value(text: str, at: int) -> tuple[Any, int]:
    """Return the value at a position, and the position after it."""
    at = _after_space(text, at)
    if text.startswith(QUOTE, at):
        begin = at + len(QUOTE)
        end = text.index(QUOTE, begin)
        return text[begin:end], end + len(QUOTE)
    if text.startswith("None", at):  # in conversations, templates of before July 2026 write null so
        return None, at + len("None")
    if text[at : at + 1] not in ("{", "["):
        return read_json_at(text, at)
    return _object(text, at + 1) if text[at] == "{" else _list(text, at + 1)


def _object(text: str, at: int) -> tuple[dict[str, Any], int]:
    members: dict[str, Any] = {}
    while text[(at := _after_space(text, at)) : at + 1] != "}":
        at = _after(",", text, at) if members else at
        key, at = _key(text, _after_space(text, at))
        members[key], at = _value(text, _after(":", text, at))
    return members, at + 1


def _list(text: str, at: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while text[(at := _after_space(text, at)) : at + 1] != "]":
        item, at = _value(text, _after(",", text, at) if items else at)
        items.append(item)
    return items, at + 1


def _key(text: str, at: int) -> tuple[str, int]:
    """Return a key, and the position after it. A key may be in QUOTE, as transformers allows."""
    if text.startswith(QUOTE, at):
        return _value(text, at)
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


# -- grammar ----------------------------------------------------------------------------------------------------------


class _Unquoted:
    """Writes the expressions of one schema."""

    def __init__(self, root: Mapping[str, Any], rules: CallRules) -> None:
        self._root, self._rules = root, rules
        self._end = rules.format.end
        self._quote = rules.marker(QUOTE)

    def expression(self, schema: Any) -> str:
        """Return an expression for a schema."""
        if schema is True:
            return self._anything()
        if not isinstance(schema, dict):
            raise refused(f"expected JSON schemas as objects, got {json.dumps(schema)[:80]}")
        for key in ("$ref", "anyOf", "allOf", "const", "enum"):
            if key in schema:
                return self._special(key, schema)
        keywords = {key for key in schema if key not in _ANNOTATIONS and key != "type"}
        types = _types(schema, [kind for kind in _KEYWORDS if keywords & _KEYWORDS[kind]])
        if unknown := sorted(keywords.difference(*(_KEYWORDS[kind] for kind in types))):
            raise refused(f"the schema keyword {unknown[0][:80]!r} is not supported in the model's format of calls")
        if not types:
            return self._anything()
        return self._either([self._typed(kind, schema) for kind in types])

    def _special(self, key: str, schema: Mapping[str, Any]) -> str:
        """Return an expression for a schema that refers to others or lists its values."""
        beside = sorted(set(schema) - _ANNOTATIONS - {key} - ({"type"} if key in ("const", "enum") else set()))
        if beside:
            raise refused(f"{key} with {beside[0][:80]!r} is not supported in the model's format of calls")
        value = schema[key]
        if key == "$ref":
            return self._reference(value)
        if key == "const":
            value = [value]
        if not isinstance(value, list) or not value or (key == "allOf" and len(value) > 1):
            raise refused(f"expected {key} with {'one entry' if key == 'allOf' else 'a list'}")
        if key in ("anyOf", "allOf"):
            return self._either([self.expression(entry) for entry in value])
        types = _types(schema, list(TYPES))
        allowed = [entry for entry in value if any(_is(entry, kind) for kind in types)]
        if not allowed:
            raise refused(f"no value of {key} is of type {json.dumps(types)[:80]}")
        return self._either([self._literal(entry) for entry in allowed])

    def _either(self, bodies: Sequence[str]) -> str:
        return bodies[0] if len(bodies) == 1 else f"({' | '.join(dict.fromkeys(bodies))})"

    def _reference(self, path: Any) -> str:
        """Return the rule of a shared definition, which may contain itself."""
        try:
            schema = referenced(path, self._root)
        except ValueError as error:
            raise refused(str(error)) from error
        if path not in self._rules.shared:
            self._rules.shared[path] = rule = self._rules.new_name()
            self._rules.add(self.expression(schema), rule)
        return self._rules.shared[path]

    def _typed(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind == "string":
            return self._string(limit_of(schema, "minLength") or 0, limit_of(schema, "maxLength"))
        if kind == "array":
            return self._array(schema)
        if kind == "object":
            return self._object(schema)
        return json_value({"type": kind, **{key: schema[key] for key in _KEYWORDS[kind] if key in schema}})

    def _string(self, low: int, high: int | None) -> str:
        key = ("string", low, high)
        if key not in self._rules.shared:
            self._rules.shared[key] = self._rules.add(self._quoted(low, high))
        return self._rules.shared[key]

    def _quoted(self, low: int, high: int | None) -> str:
        """Return a string of `low` to `high` characters. Without a special token for QUOTE, its end is searched."""
        quote, end = escaped(QUOTE), escaped(self._end)
        upper = "" if high is None else high
        if not self._quote.startswith("<["):
            other = rf"~/(.|\n)*({quote}(.|\n)|{end})(.|\n)*/"
            rest = self._rules.lazy(f"/(.|\\n){{{low},{upper}}}{quote}/", other)
            return f"{self._quote} {rest}"
        if high == 0:
            return f"{self._quote} {self._quote}"
        terminal = self._rules.new_name().upper()
        self._rules.add(f"/(.|\\n){{{max(low, 1)},{upper}}}/ & ~/(.|\\n)*({quote}|{end})(.|\\n)*/", terminal)
        return f"{self._quote} {terminal}{'' if low else '?'} {self._quote}"

    def _array(self, schema: Mapping[str, Any]) -> str:
        low, high = limit_of(schema, "minItems") or 0, limit_of(schema, "maxItems")
        if high == 0:
            return '"[" "]"'
        item = self._rules.add(self.expression(schema.get("items", True)))
        more = "" if high is None else high - 1
        items = f'{item} ("," {item}){{{max(low - 1, 0)},{more}}}'
        return f'"[" {items} "]"' if low else f'"[" ({items})? "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        required = schema.get("required", [])
        properties = schema.get("properties", {})
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise refused("expected properties as an object, and required as a list")
        properties = {**{str(name): True for name in required}, **properties}
        if properties:
            return f'"{{" {self._members(properties, required)} "}}"'
        values = schema.get("additionalProperties", "properties" not in schema)
        if values is False:
            return '"{" "}"'
        return self._map(self._rules.add(self.expression(values)))

    def _map(self, value: str) -> str:
        member = f'{_ANY_KEY} ":" {value}'
        return f'"{{" ({member} ("," {member})*)? "}}"'

    def _members(self, properties: Mapping[str, Any], required: Sequence[Any]) -> str:
        """Return the members of an object. A comma precedes each one but the first that is present."""
        names = sorted(properties, key=str.lower)
        if wrong := next((name for name in names if not UNQUOTED_KEY.fullmatch(name)), None):
            raise refused(f"the model cannot write an argument named {wrong[:80]!r}")
        members = [(f"{name}:", self.expression(properties[name]), name in required) for name in names]
        return self._rules.members(members, ",")

    def _anything(self) -> str:
        key = ("any",)
        if key not in self._rules.shared:
            self._rules.shared[key] = name = self._rules.new_name()
            scalar = json_value({"type": ["number", "boolean", "null"]})
            listed = f'"[" ({name} ("," {name})*)? "]"'
            self._rules.add(f"{self._string(0, None)} | {scalar} | {listed} | {self._map(name)}", name)
        return self._rules.shared[key]

    def _literal(self, value: Any) -> str:
        """Return one value."""
        if isinstance(value, str):
            if QUOTE in value or self._end in value:
                raise refused(f"the model cannot write the string {value[:80]!r}")
            inside = f" {literal(value)} " if value else " "
            return f"{self._quote}{inside}{self._quote}"
        if isinstance(value, list):
            return f'"[" {""" "," """.join(map(self._literal, value))} "]"'
        if isinstance(value, dict):
            members = (f"{literal(f'{name}:')} {self._literal(value[name])}" for name in sorted(value, key=str.lower))
            return f'"{{" {""" "," """.join(members)} "}}"'
        return json.dumps(json.dumps(value))


def _types(schema: Mapping[str, Any], default: list[str]) -> list[str]:
    """Return the types of a schema; `default` if it states none."""
    types = schema.get("type", default)
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or not all(isinstance(kind, str) and kind in _KEYWORDS for kind in types):
        raise refused(f"expected types out of {', '.join(_KEYWORDS)}, got {json.dumps(types)[:80]}")
    return types


def _is(value: Any, kind: str) -> bool:
    """Return whether a value is of a type of JSON schema."""
    return isinstance(value, TYPES[kind]) and (not isinstance(value, bool) or kind == "boolean")


SHAPE = UnquotedShape()
