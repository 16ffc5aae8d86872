"""Consecutive JSON objects with a name and arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..call_rules import json_arguments
from ..call_values import checked_call, open_quote, read_json, read_json_values
from . import CallRules, Schemas, ToolCall, ToolFormat, ToolShape, literal

JSON_QUOTE = re.compile('"')


class ObjectShape(ToolShape):
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        return [object_call(entry, format) for entry in read_json_values(inside)]

    def grammar(self, name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
        return object_grammar(name, schema, rules)

    def block(self, call: str, max_calls: int) -> str:
        return f'"\\n"? ({call}) "\\n"?'

    def open_string(self, text: str, opened: str) -> str:
        return open_quote(text, opened, JSON_QUOTE)


def object_call(entry: Any, format: ToolFormat) -> ToolCall:
    """Return the call of an object with a name and arguments."""
    if not isinstance(entry, dict) or format.name not in entry:
        raise ValueError("not a call")
    arguments = entry.get(format.arguments, {})
    if isinstance(arguments, str):  # some models write them as JSON in a string
        arguments = read_json(arguments)
    return checked_call(entry[format.name], arguments)


def object_grammar(name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
    format = rules.format
    opening = f"{{{literal(format.name)}: {literal(name)}, {literal(format.arguments)}: "
    return f"{literal(opening)} {json_arguments(schema)} {literal('}')}"


SHAPE = ObjectShape()
