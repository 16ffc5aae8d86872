"""Grammars of the values in tool calls, in llguidance's Lark: as JSON, or with unquoted keys and strings in QUOTE."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from ...llm.constraints import EXACT, LAYOUT, without_excluded_integers
from ...llm.tokenizer import Tokenizer
from ...llm.tools import QUOTE, UNQUOTED_KEY
from ..errors import ApiError

_DEFINITIONS = ("$defs", "definitions")
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
) | set(_DEFINITIONS)
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
_CLASSES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_ANY_KEY = r"/[A-Za-z_][A-Za-z0-9_.\-]*/"


def json_value(schema: Any) -> str:
    """Return a JSON schema inside a grammar, with the white space of `json.dumps`."""
    exact = without_excluded_integers(schema)
    laid_out = {"x-guidance": {**LAYOUT, **EXACT}, **exact} if isinstance(exact, dict) else exact
    return f"%json {json.dumps(laid_out, ensure_ascii=True)}"


def marker(text: str, tokenizer: Tokenizer) -> str:
    """Return a marker: a special token if it is one, else a literal."""
    if not text:
        return ""
    number = tokenizer.token_id(text)
    if number is not None and number in tokenizer.special_ids:
        return f"<[{number}]>"
    return json.dumps(text, ensure_ascii=False)


def escaped(text: str) -> str:
    """Return a regular expression that matches a text."""
    return re.sub(r"([][(){}.*+?|^$/\\])", r"\\\1", text)


def unquoted_value(schema: Any, name: str, end: str, tokenizer: Tokenizer) -> str:
    """Return the body of the rule `name`, which matches a value of a schema, and the rules that it needs.

    Strings do not contain `end`, the end of a call. Keys are in the order in which templates sort them.
    """
    return _Unquoted(schema, name, end, tokenizer).text()


class _Unquoted:
    """Collects the rules of one schema."""

    def __init__(self, schema: Any, name: str, end: str, tokenizer: Tokenizer) -> None:
        self._root, self._name, self._end = schema, name, end
        self._quote = marker(QUOTE, tokenizer)
        self._rules: list[str] = []
        self._shared: dict[tuple[Any, ...], str] = {}  # the names of rules for what may occur several times
        self._numbers = count()

    def text(self) -> str:
        return "\n".join((self._value(self._root), *self._rules))

    def _rule(self, body: str) -> str:
        name = self._new_name()
        self._rules.append(f"{name}: {body}")
        return name

    def _new_name(self) -> str:
        return f"{self._name}_{next(self._numbers)}"

    def _value(self, schema: Any) -> str:
        """Return an expression for a schema."""
        if schema is True:
            return self._anything()
        if not isinstance(schema, dict):
            raise _refused(f"expected JSON schemas as objects, got {json.dumps(schema)[:80]}")
        for key in ("$ref", "anyOf", "allOf", "const", "enum"):
            if key in schema:
                return self._special(key, schema)
        keywords = {key for key in schema if key not in _ANNOTATIONS and key != "type"}
        types = _types(schema, [kind for kind in _KEYWORDS if keywords & _KEYWORDS[kind]])
        if unknown := sorted(keywords.difference(*(_KEYWORDS[kind] for kind in types))):
            raise _refused(f"the schema keyword {unknown[0][:80]!r} is not supported in the model's format of calls")
        if not types:
            return self._anything()
        return self._either([self._typed(kind, schema) for kind in types])

    def _special(self, key: str, schema: Mapping[str, Any]) -> str:
        """Return an expression for a schema that refers to others or lists its values."""
        beside = sorted(set(schema) - _ANNOTATIONS - {key} - ({"type"} if key in ("const", "enum") else set()))
        if beside:
            raise _refused(f"{key} with {beside[0][:80]!r} is not supported in the model's format of calls")
        value = schema[key]
        if key == "$ref":
            return self._reference(value)
        if key == "const":
            value = [value]
        if not isinstance(value, list) or not value or (key == "allOf" and len(value) > 1):
            raise _refused(f"expected {key} with {'one entry' if key == 'allOf' else 'a list'}")
        if key in ("anyOf", "allOf"):
            return self._either([self._value(entry) for entry in value])
        types = _types(schema, list(_CLASSES))
        allowed = [entry for entry in value if any(_is(entry, kind) for kind in types)]
        if not allowed:
            raise _refused(f"no value of {key} is of type {json.dumps(types)[:80]}")
        return self._either([self._literal(entry) for entry in allowed])

    def _either(self, bodies: Sequence[str]) -> str:
        return bodies[0] if len(bodies) == 1 else f"({' | '.join(dict.fromkeys(bodies))})"

    def _reference(self, path: Any) -> str:
        """Return the rule of a shared definition, which may contain itself."""
        place, _, name = path.removeprefix("#/").rpartition("/") if isinstance(path, str) else ("", "", "")
        schemas = self._root.get(place) if place in _DEFINITIONS else None
        if not isinstance(schemas, dict) or name not in schemas:
            raise _refused(f"expected $ref to an entry of {' or '.join(_DEFINITIONS)}, got {json.dumps(path)[:80]}")
        key = ("$ref", place, name)
        if key not in self._shared:
            self._shared[key] = rule = self._new_name()
            self._rules.append(f"{rule}: {self._value(schemas[name])}")
        return self._shared[key]

    def _typed(self, kind: str, schema: Mapping[str, Any]) -> str:
        if kind == "string":
            return self._string(_limit(schema, "minLength") or 0, _limit(schema, "maxLength"))
        if kind == "array":
            return self._array(schema)
        if kind == "object":
            return self._object(schema)
        return json_value({"type": kind, **{key: schema[key] for key in _KEYWORDS[kind] if key in schema}})

    def _string(self, low: int, high: int | None) -> str:
        key = ("string", low, high)
        if key not in self._shared:
            self._shared[key] = self._rule(self._quoted(self._new_name().upper(), low, high))
        return self._shared[key]

    def _quoted(self, terminal: str, low: int, high: int | None) -> str:
        """Return a string of `low` to `high` characters. Without a special token for QUOTE, its end is searched."""
        quote, end = escaped(QUOTE), escaped(self._end)
        upper = "" if high is None else high
        if not self._quote.startswith("<["):
            other = rf"~/(.|\n)*({quote}(.|\n)|{end})(.|\n)*/"
            rest = terminal.lower()
            self._rules += [f"{terminal}: /(.|\\n){{{low},{upper}}}{quote}/ & {other}", f"{rest}[lazy]: {terminal}"]
            return f"{self._quote} {rest}"
        if high == 0:
            return f"{self._quote} {self._quote}"
        self._rules.append(f"{terminal}: /(.|\\n){{{max(low, 1)},{upper}}}/ & ~/(.|\\n)*({quote}|{end})(.|\\n)*/")
        return f"{self._quote} {terminal}{'' if low else '?'} {self._quote}"

    def _array(self, schema: Mapping[str, Any]) -> str:
        low, high = _limit(schema, "minItems") or 0, _limit(schema, "maxItems")
        if high == 0:
            return '"[" "]"'
        item = self._rule(self._value(schema.get("items", True)))
        more = "" if high is None else high - 1
        items = f'{item} ("," {item}){{{max(low - 1, 0)},{more}}}'
        return f'"[" {items} "]"' if low else f'"[" ({items})? "]"'

    def _object(self, schema: Mapping[str, Any]) -> str:
        required = schema.get("required", [])
        properties = schema.get("properties", {})
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise _refused("expected properties as an object, and required as a list")
        properties = {**{str(name): True for name in required}, **properties}
        if properties:
            return f'"{{" {self._members(properties, required)} "}}"'
        values = schema.get("additionalProperties", "properties" not in schema)
        if values is False:
            return '"{" "}"'
        return self._map(self._rule(self._value(values)))

    def _map(self, value: str) -> str:
        member = f'{_ANY_KEY} ":" {value}'
        return f'"{{" ({member} ("," {member})*)? "}}"'

    def _members(self, properties: Mapping[str, Any], required: Sequence[Any]) -> str:
        """Return the members of an object. A comma precedes each one but the first that is present."""
        first, rest = '""', '""'
        for name in sorted(properties, key=str.lower, reverse=True):
            if not UNQUOTED_KEY.fullmatch(name):
                raise _refused(f"the model cannot write an argument named {name[:80]!r}")
            member = f"{json.dumps(f'{name}:', ensure_ascii=False)} {self._rule(self._value(properties[name]))}"
            must = name in required
            first = self._rule(f"{member} {rest}" if must else f"{member} {rest} | {first}")
            rest = self._rule(f'"," {member} {rest}' if must else f'("," {member})? {rest}')
        return first

    def _anything(self) -> str:
        key = ("any",)
        if key not in self._shared:
            self._shared[key] = name = self._new_name()
            scalar = json_value({"type": ["number", "boolean", "null"]})
            listed = f'"[" ({name} ("," {name})*)? "]"'
            self._rules.append(f"{name}: {self._string(0, None)} | {scalar} | {listed} | {self._map(name)}")
        return self._shared[key]

    def _literal(self, value: Any) -> str:
        """Return one value."""
        if isinstance(value, str):
            if QUOTE in value or self._end in value:
                raise _refused(f"the model cannot write the string {value[:80]!r}")
            inside = f" {json.dumps(value, ensure_ascii=False)} " if value else " "
            return f"{self._quote}{inside}{self._quote}"
        if isinstance(value, list):
            return f'"[" {""" "," """.join(map(self._literal, value))} "]"'
        if isinstance(value, dict):
            members = (
                f"{json.dumps(f'{name}:', ensure_ascii=False)} {self._literal(value[name])}"
                for name in sorted(value, key=str.lower)
            )
            return f'"{{" {""" "," """.join(members)} "}}"'
        return json.dumps(json.dumps(value))


def _types(schema: Mapping[str, Any], default: list[str]) -> list[str]:
    """Return the types of a schema; `default` if it states none."""
    types = schema.get("type", default)
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or not all(isinstance(kind, str) and kind in _KEYWORDS for kind in types):
        raise _refused(f"expected types out of {', '.join(_KEYWORDS)}, got {json.dumps(types)[:80]}")
    return types


def _is(value: Any, kind: str) -> bool:
    """Return whether a value is of a type of JSON schema."""
    return isinstance(value, _CLASSES[kind]) and (not isinstance(value, bool) or kind == "boolean")


def _limit(schema: Mapping[str, Any], key: str) -> int | None:
    """Return the value of a keyword that counts; None if the schema does not have it."""
    value = schema.get(key)
    if key in schema and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise _refused(f"expected {key} as an integer of at least 0, got {json.dumps(value)[:80]}")
    return value


def _refused(why: str) -> ApiError:
    return ApiError(400, f"tools: {why}", param="tools")
