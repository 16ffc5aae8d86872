"""Values of arguments in tool calls: as JSON, and as the schema of a tool allows them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from .tool_shapes import ToolCall

DEFINITIONS = ("$defs", "definitions")
TYPES: Mapping[str, tuple[type, ...]] = {  # of JSON schema; the first that fits is the type of a value
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
JSON_TYPES = frozenset(TYPES) - {"integer"}  # an integer is a number
PYTHON_WORDS = {"True": True, "False": False, "None": None}  # as templates write other values than strings
MAX_REFERENCES = 32  # that follow each other
_SEPARATORS = re.compile(r"[ \t\r\n;]*")


# -- JSON -------------------------------------------------------------------------------------------------------------


def _finite(text: str) -> float:
    """Return a number. Infinity cannot be written as JSON."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _refuse(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refuse)


def read_json(text: str) -> Any:
    """Return a JSON value. Raise ValueError unless it is one that can be written as JSON again."""
    return _DECODER.decode(text)


def read_json_at(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value at a position, and the position after it."""
    return _DECODER.raw_decode(text, at)


def read_json_values(text: str) -> list[Any]:
    """Return JSON values that follow each other. Some models separate them by semicolons."""
    values, at = [], _after_separators(text, 0)
    while at < len(text):
        value, at = read_json_at(text, at)
        values.append(value)
        at = _after_separators(text, at)
    return values


def _after_separators(text: str, at: int) -> int:
    match = _SEPARATORS.match(text, at)
    assert match is not None  # it may be empty
    return match.end()


def checked_call(name: Any, arguments: Any) -> ToolCall:
    """Return a call. Raise ValueError unless it has a name and named arguments."""
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise ValueError("not a call")
    return ToolCall(name, _well_formed(arguments))


def _well_formed(value: Any) -> Any:
    """Return a value in whose strings halves of surrogate pairs, which UTF-8 cannot write, are replaced."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_well_formed(item) for item in value]
    if isinstance(value, dict):
        return {_well_formed(key): _well_formed(item) for key, item in value.items()}
    return value


def open_quote(text: str, opened: str, quotes: re.Pattern[str]) -> str:
    """Return the quote of the string that a text leaves open; empty for none. In strings, backslashes escape."""
    at = 0
    while at < len(text):
        if opened:
            end = re.compile(rf"(?:[^\\]|\\.)*?{opened}", re.DOTALL).match(text, at)
            if end is None:
                return opened
            opened, at = "", end.end()
        quote = quotes.search(text, at)
        if quote is None:
            return ""
        opened, at = quote[0], quote.end()
    return opened


# -- schemas ----------------------------------------------------------------------------------------------------------


def properties_of(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the arguments that a schema names, in its order, with their schemas."""
    properties = schema.get("properties")
    named = {str(name): each for name, each in properties.items()} if isinstance(properties, Mapping) else {}
    return named | {name: True for name in required_of(schema) if name not in named}


def required_of(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required")
    return [name for name in required if isinstance(name, str)] if isinstance(required, list) else []


def referenced(path: Any, root: Mapping[str, Any]) -> Any:
    """Return the shared definition that a $ref names. Raise ValueError if there is none."""
    place, _, name = path.removeprefix("#/").rpartition("/") if isinstance(path, str) else ("", "", "")
    schemas = root.get(place) if place in DEFINITIONS else None
    if not isinstance(schemas, Mapping) or name not in schemas:
        raise ValueError(f"expected $ref to an entry of {' or '.join(DEFINITIONS)}, got {json.dumps(path)[:80]}")
    return schemas[name]


def type_of(value: Any) -> str:
    """Return the type of a JSON value, which is never `integer`."""
    name = next(name for name, classes in TYPES.items() if isinstance(value, classes))
    return "number" if name == "integer" else name


def json_types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """Return the types of the values that a schema may allow, without `integer`."""
    if not isinstance(schema, Mapping) or depth > MAX_REFERENCES:
        return JSON_TYPES
    types = JSON_TYPES
    if "type" in schema:
        named = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        types = types & frozenset("number" if name == "integer" else name for name in named if isinstance(name, str))
    if "const" in schema:
        types &= {type_of(schema["const"])}
    if isinstance(schema.get("enum"), list):
        types &= frozenset(map(type_of, schema["enum"]))
    if "$ref" in schema:
        with suppress(ValueError):  # a reference of another kind says nothing of the types
            types &= json_types(referenced(schema["$ref"], root), root, depth + 1)
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            types &= frozenset().union(*(json_types(each, root, depth + 1) for each in schema[key]))
    for each in schema["allOf"] if isinstance(schema.get("allOf"), list) else ():
        types &= json_types(each, root, depth + 1)
    return types


def read_raw(text: str, schema: Any, root: Mapping[str, Any]) -> Any:
    """Return the value of a text in which strings have no quotes and other values are JSON.

    A text that is JSON of another type which the schema allows is of this type, any other text is a string. If the
    schema states types, Python's words are read as well.
    """
    types = json_types(schema, root)
    try:
        value = read_json(text)
    except (ValueError, RecursionError):
        stated = types != JSON_TYPES and type_of(PYTHON_WORDS.get(text, "")) in types
        return PYTHON_WORDS.get(text, text) if stated else text
    return text if "string" in types and (isinstance(value, str) or type_of(value) not in types) else value
