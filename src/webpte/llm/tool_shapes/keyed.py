"""A JSON list of objects with the name of a tool as their key, and the arguments as its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..call_rules import json_arguments
from ..call_values import checked_call
from . import CallRules, Schemas, ToolCall, ToolFormat, literal
from .list import ListShape, json_list


class KeyedShape(ListShape):
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        entries = json_list(inside)
        if not all(isinstance(entry, dict) for entry in entries):
            raise ValueError("not a call")
        return [checked_call(name, arguments) for entry in entries for name, arguments in entry.items()]

    def grammar(self, name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
        return f"{literal(f'{{{literal(name)}: ')} {json_arguments(schema)} {literal('}')}"


SHAPE = KeyedShape()
