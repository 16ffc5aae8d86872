"""Parts of grammars of tool calls, in llguidance's Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ..errors import InputError
from .call_values import DEFINITIONS
from .constraints import EXACT, LAYOUT, without_excluded_integers


def json_value(schema: Any) -> str:
    """Return a JSON schema inside a grammar, with the white space of `json.dumps`."""
    exact = without_excluded_integers(schema)
    laid_out = {"x-guidance": {**LAYOUT, **EXACT}, **exact} if isinstance(exact, dict) else exact
    return f"%json {json.dumps(laid_out, ensure_ascii=True)}"


def json_arguments(schema: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON, without additional ones, which small models like to invent."""
    named = "properties" in schema and "patternProperties" not in schema
    return json_value({**({"additionalProperties": False} if named else {}), **schema})


def with_definitions(schema: Any, root: Mapping[str, Any]) -> Any:
    """Return the schema of an argument with the shared definitions of the schema of all arguments."""
    shared = {key: root[key] for key in DEFINITIONS if key in root}
    return {**shared, **schema} if isinstance(schema, dict) else schema


def escaped(text: str) -> str:
    """Return a regular expression that matches a text."""
    return re.sub(r"([][(){}.*+?|^$/\\])", r"\\\1", text).replace("\n", r"\n")


def limit_of(schema: Mapping[str, Any], key: str) -> int | None:
    """Return the value of a keyword that counts; None if the schema does not have it."""
    value = schema.get(key)
    if key in schema and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise refused(f"expected {key} as an integer of at least 0, got {json.dumps(value)[:80]}")
    return value


def refused(why: str) -> InputError:
    """Return the error for a tool that a model cannot be held to in its format of calls."""
    return InputError(why, argument="tools", code="tool_schema")
