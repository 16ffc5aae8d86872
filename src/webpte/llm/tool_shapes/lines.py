"""Calls as Python writes them, one per line, without brackets."""

from __future__ import annotations

from . import Schemas, ToolCall, ToolFormat
from .list import separated
from .python import CallReader, PythonShape


class LinesShape(PythonShape):
    def parse(self, inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall]:
        reader = CallReader(inside.strip())
        calls: list[ToolCall] = []
        while not reader.ended:
            if calls and not reader.skip_line():
                raise ValueError("several calls in a line")
            calls.append(reader.call())
        return calls

    def block(self, call: str, max_calls: int) -> str:
        calls = separated(call, r"\n", max_calls)
        return rf'"\n"? {calls} "\n"?'


SHAPE = LinesShape()
