"""One call as its name, a separator and a JSON object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..call_rules import json_arguments
from ..call_values import checked_call, open_quote, read_json
from . import CallRules, Schemas, ToolCall, ToolFormat, ToolShape, literal
from .object import JSON_QUOTE


class NamedShape(ToolShape):
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        name, _, arguments = inside.partition(format.arguments)
        return [checked_call(name.strip(), read_json(arguments.strip()))]

    def grammar(self, name: str, schema: Mapping[str, Any], rules: CallRules) -> str:
        return f"{literal(name)} {rules.marker(rules.format.arguments)} {json_arguments(schema)}"

    def repeats(self, format: ToolFormat) -> bool:
        return True

    def open_string(self, text: str, opened: str) -> str:
        return open_quote(text, opened, JSON_QUOTE)


SHAPE = NamedShape()
