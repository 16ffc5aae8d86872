"""A JSON list of objects with a name and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..call_values import open_quote, read_json
from . import CallRules, Schemas, ToolCall, ToolFormat, ToolShape
from .object import JSON_QUOTE, object_call, object_grammar


class ListShape(ToolShape):
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        return [object_call(entry, format) for entry in json_list(inside)]

    def grammar(self, name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
        return object_grammar(name, schema, rules)

    def block(self, call: str, max_calls: int) -> str:
        return f'"[" {separated(call, ", ", max_calls)} "]"'

    def repeats(self, format: ToolFormat) -> bool:
        return False

    def open_string(self, text: str, opened: str) -> str:
        return open_quote(text, opened, JSON_QUOTE)


def json_list(inside: str) -> list[Any]:
    entries = read_json(inside.strip())
    if not isinstance(entries, list):
        raise ValueError("not a list")
    return entries


def separated(call: str, separator: str, max_calls: int) -> str:
    """Return the expression of one to `max_calls` calls."""
    several = f' ("{separator}" ({call})){{0,{max_calls - 1}}}' if max_calls > 1 else ""
    return f"({call}){several}"


SHAPE = ListShape()
