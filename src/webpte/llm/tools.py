"""Tool calls in the text that a model has generated."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ..errors import InputError
from .tool_shapes import Schemas, ToolCall, ToolFormat, ToolShape, shape_named


class ParsedText(NamedTuple):
    """A text without its tool calls, and the calls."""

    text: str
    calls: tuple[ToolCall, ...]


def schemas_of(tools: Sequence[Mapping[str, Any]] | None) -> Schemas:
    """Return the schemas of the arguments of tools, which are as `LLM.generate` takes them."""
    functions = [tool.get("function") for tool in tools or () if isinstance(tool, Mapping)]
    named = {each["name"]: each.get("parameters") for each in functions if isinstance(each, Mapping) and "name" in each}
    return {name: schema for name, schema in named.items() if isinstance(schema, Mapping)}


def parse_tool_calls(text: str, format: ToolFormat, tools: Sequence[Mapping[str, Any]] | None = None) -> ParsedText:
    """Return the tool calls in a generated text, which includes special tokens, and the rest of the text.

    `tools` are those that the model was shown, as `LLM.generate` takes them. Where a format writes strings without
    quotes, their schemas say which arguments are strings. A malformed call stays in the text.
    """
    for argument, value, kind in (("text", text, str), ("format", format, ToolFormat)):
        if not isinstance(value, kind):
            raise InputError(
                argument=argument, expected=f"a {kind.__name__}", got=type(value).__name__, code="wrong_type"
            )
    return parse_calls(text, format, schemas_of(tools))


def parse_calls(text: str, format: ToolFormat, schemas: Schemas) -> ParsedText:
    """Return the tool calls in a text, and the rest of the text."""
    rest: list[str] = []
    calls: list[ToolCall] = []
    for outside, inside in _blocks(text, format):
        rest.append(outside)
        parsed = calls_of_block(inside, format, schemas) if inside is not None else None
        if parsed is None and inside is not None:
            begin = format.begin if format.begin in text else ""
            rest.append(f"{begin}{inside}{format.end}")
        calls += parsed or ()
    outer = "".join(rest)
    return ParsedText(outer.strip() if calls else outer, tuple(calls))


def _blocks(text: str, format: ToolFormat) -> Iterator[tuple[str, str | None]]:
    """Yield pieces of a text, each with the content of the block after it; None after the last piece."""
    if format.bare and text.lstrip().startswith(("{", "[")):
        yield "", text
        return
    mark, shape = format.end or format.begin, shape_named(format.shape)
    while True:
        outside, begin, rest = text.partition(format.begin)
        if not begin:
            yield outside, None
            return
        end = _end_of_block(rest, mark, shape)
        if format.end and end is None:  # the call is truncated
            yield outside + begin + rest, None
            return
        yield outside, rest[:end]
        text = "" if end is None else rest[end + len(format.end) :]


def _end_of_block(text: str, mark: str, shape: ToolShape) -> int | None:
    """Return the position of the first mark outside of strings; of the first one if a string has no end."""
    block = OpenBlock(shape)
    first = position = text.find(mark)
    begin = 0
    while position >= 0:
        if block.ends_after(text[begin:position]):
            return position
        begin, position = position, text.find(mark, position + len(mark))
    return first if first >= 0 and not block.ends_after(text[begin:]) else None


class OpenBlock:
    """A block whose text arrives in pieces. A mark inside of a string does not end it."""

    def __init__(self, shape: ToolShape) -> None:
        self._shape = shape
        self._opened = ""

    def ends_after(self, text: str) -> bool:
        """Take the text up to the next mark, with the mark before it. Return whether the mark after it is the end."""
        self._opened = self._shape.open_string(text, self._opened)
        return not self._opened


def calls_of_block(inside: str, format: ToolFormat, schemas: Schemas) -> list[ToolCall] | None:
    """Return the calls of a block; None if its content is something else."""
    try:
        return shape_named(format.shape).parse(inside, format, schemas)
    except (ValueError, RecursionError, MemoryError):
        return None
