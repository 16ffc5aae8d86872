"""Tools: those that a request offers, and the parser of a response with calls."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ...llm.engine.output import Piece
from ...llm.engine.stop_strings import StopStringBuffer, StopStrings
from ...llm.prompts import TemplateFunction, TemplateTool
from ...llm.settings import GenerateSettings, stop_strings
from ...llm.text_model import TextModel
from ...llm.tokenizer import TextStream
from ...llm.tool_grammar import tool_grammar
from ...llm.tool_shapes import Schemas, ToolCall, ToolFormat, shape_named
from ...llm.tools import OpenBlock, parse_calls
from ...typing import JsonObject
from ..bodies import shown
from ..config import Config
from ..errors import ApiError
from .requests import (
    ChatRequest,
    ChatTool,
    ChatToolChoice,
    Function,
    FunctionName,
    ResponsesRequest,
    TokenizeRequest,
    ToolChoiceMode,
)

MAX_ARGUMENTS = 128  # of a function: some grammars copy the shared definitions of a schema for each


@dataclass(frozen=True)
class ToolConfig:
    """The tools of a request, and whether they must be called."""

    tools: tuple[Function, ...] = ()  # shown to the template
    callable: tuple[Function, ...] = ()  # all of them, or the one that tool_choice names
    choice: ToolChoiceMode = "none"
    parallel: bool = True

    def for_template(self) -> list[TemplateTool] | None:
        """Return the tools as chat templates expect them; None if there are none."""
        if self.choice == "none":
            return None
        return [{"type": "function", "function": _for_template(tool)} for tool in self.tools]

    @property
    def schemas(self) -> Schemas:
        return {tool.name: _parameters_schema(tool) for tool in self.tools}


def _for_template(tool: Function) -> TemplateFunction:
    return {"name": tool.name, "description": tool.description, "parameters": _parameters_schema(tool)}


def _parameters_schema(tool: Function) -> JsonObject:
    return {"type": "object", **tool.parameters}


def tool_config(body: ChatRequest | ResponsesRequest | TokenizeRequest, config: Config) -> ToolConfig:
    """Return the tools of a request."""
    tools = tuple(tool.function if isinstance(tool, ChatTool) else tool for tool in body.tools)
    choice = body.tool_choice or "auto"
    named = choice.function if isinstance(choice, ChatToolChoice) else choice
    return checked_tools(tools, named, body.parallel_tool_calls, config)


def checked_tools(
    tools: tuple[Function, ...], choice: ToolChoiceMode | FunctionName, parallel: bool, config: Config
) -> ToolConfig:
    """Return tools, checked against each other and the server's limits. `choice` may name the one to call."""
    if len(tools) > config.max_tools:
        raise ApiError(400, f"tools: expected at most {config.max_tools} (max_tools), got {len(tools)}", param="tools")
    limit, size = config.max_schema_bytes, len(json.dumps([_for_template(tool) for tool in tools]))
    if size > limit:
        raise ApiError(400, f"tools: expected at most {limit} bytes (max_schema_bytes), got {size}", param="tools")
    for at, tool in enumerate(tools):
        _check_parameters(tool.parameters, f"tools[{at}]")
    names = [tool.name for tool in tools]
    if double := [name for name, count in Counter(names).items() if count > 1]:
        raise ApiError(400, f"tools: {', '.join(sorted(double))} is defined more than once", param="tools")
    if isinstance(choice, str):
        if choice == "required" and not tools:
            raise ApiError(400, "tool_choice: required, but the request has no tools", param="tool_choice")
        return ToolConfig(tools, tools, choice if tools else "none", parallel)
    chosen = tuple(tool for tool in tools if tool.name == choice.name)
    if not chosen:
        raise ApiError(400, f"tool_choice: expected one of {names}, got {choice.name[:80]!r}", param="tool_choice")
    return ToolConfig(tools, chosen, "required", parallel=False)


def _check_parameters(schema: Mapping[str, Any], tool: str) -> None:
    """Raise ApiError 400 unless a schema describes the arguments of a function."""
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if schema.get("type", "object") != "object":
        raise ApiError(400, f"{tool}: expected parameters of type object", param=tool)
    if not isinstance(properties, dict):
        raise ApiError(400, f"{tool}: expected properties to be an object, got {shown(properties)}", param=tool)
    if not isinstance(required, list) or not all(isinstance(name, str) for name in required):
        raise ApiError(400, f"{tool}: expected required to be a list of strings, got {shown(required)}", param=tool)
    if len(properties) > MAX_ARGUMENTS:
        raise ApiError(400, f"{tool}: expected at most {MAX_ARGUMENTS} properties, got {len(properties)}", param=tool)


@dataclass(frozen=True)
class CallSyntax:
    """How a response with tool calls is parsed. The stop strings of the request end the text outside of calls."""

    format: ToolFormat
    schemas: Schemas  # of the arguments, by the names of tools
    outside: StopStrings  # the beginning of a call, and the stop strings
    inside: StopStrings  # the end of a call, or the beginning of the next one


def constrain_to_tools(
    settings: GenerateSettings, tools: ToolConfig, schema: Mapping[str, Any] | None, text: TextModel
) -> CallSyntax:
    """Add the grammar of a response with tools to its settings. Its stop strings move to the syntax that is returned:
    a call may contain anything."""
    format = text.tool_format
    if format is None:
        raise ApiError(
            400,
            "tools: the model was not trained to call tools, or its files do not describe the format",
            param="tools",
        )
    settings["grammar"] = tool_grammar(
        {tool.name: tools.schemas[tool.name] for tool in tools.callable},
        format,
        text.tokenizer,
        required=tools.choice == "required",
        parallel=tools.parallel,
        content=schema,
    )
    stop = stop_strings(settings.pop("stop", ()))
    return CallSyntax(
        format, tools.schemas, StopStrings((format.begin, *stop)), StopStrings((format.end or format.begin,))
    )


# -- responses -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TextDelta:
    """Text, which may be empty, and the token that completed it."""

    text: str
    piece: Piece | None = None


@dataclass(frozen=True)
class ToolCallDelta:
    """A complete tool call."""

    index: int
    id: str
    name: str
    arguments: str  # JSON


class ToolCallParser:
    """Separates text from tool calls, token by token. Calls are returned when they are complete."""

    def __init__(self, text: TextModel, syntax: CallSyntax) -> None:
        self._stop_tokens = text.stop_tokens
        self._syntax = syntax
        self._format = syntax.format
        self._text = TextStream(text.tokenizer, specials=True)
        self._outside = StopStringBuffer(syntax.outside)
        self._inside: StopStringBuffer | None = None  # of the current call
        self._call: list[str] = []  # its text so far, after `begin`
        self._open = OpenBlock(shape_named(self._format.shape))
        self._taken = 0  # pieces of the call that it has
        self._first = True  # only white space so far
        self._trimming = False  # white space between a thought and the answer
        self.calls = 0
        self.stopped = False
        self.stop_string: str | None = None  # that ended the text

    def push(self, piece: Piece) -> Iterator[TextDelta | ToolCallDelta]:
        if piece.token in self._stop_tokens:
            return
        outputs = list(self._read(self._trimmed(self._text.push(piece.token))))
        yield TextDelta("".join(output.text for output in outputs if isinstance(output, TextDelta)), piece)
        yield from (output for output in outputs if isinstance(output, ToolCallDelta))

    def begin_answer(self, text: str) -> Iterator[TextDelta | ToolCallDelta]:
        """Begin the answer after a thought with the text in the token of its end tag."""
        self._trimming = True
        yield from self._read(self._trimmed(text))

    def _trimmed(self, text: str) -> str:
        if self._trimming:
            text = text.lstrip()
            self._trimming = not text
        return text

    def flush(self) -> Iterator[TextDelta | ToolCallDelta]:
        """Return what is left at the end of the response."""
        if self.stopped:
            return
        yield from self._read(self._trimmed(self._text.flush()))
        if self._inside is None:
            yield TextDelta(self._outside.flush(""))
        elif not self._format.end:
            self._call.append(self._inside.flush(""))
            yield from self._block("".join(self._call), whole=False)

    def _read(self, text: str) -> Iterator[TextDelta | ToolCallDelta]:
        while text:
            if self._inside is None:
                before, text = self._read_outside(text)
                if before:
                    yield TextDelta(before)
                continue
            self._call.append(self._inside.push(text))
            text = ""
            if self._inside.matched:
                mark = self._format.end or self._format.begin
                text = self._inside.held.removeprefix(mark)
                if not self._ends_call():  # the mark is inside of a string
                    self._call.append(mark)
                    self._inside = StopStringBuffer(self._syntax.inside)
                    continue
                call, whole = "".join(self._call), bool(self._format.end)
                if whole:
                    self._inside, self._outside = None, StopStringBuffer(self._syntax.outside)
                else:
                    self._begin_call()
                yield from self._block(call, whole)

    def _read_outside(self, text: str) -> tuple[str, str]:
        """Return the text before a call or a stop string, and the rest after `begin`."""
        if self._first and self._format.bare and text.lstrip().startswith(("{", "[")):
            self._begin_call()
            return "", text
        self._first = self._first and not text.strip()
        before = self._outside.push(text)
        if not self._outside.matched:
            return before, ""
        after = self._outside.held
        if after.startswith(self._format.begin):
            self._begin_call()
            return before, after.removeprefix(self._format.begin)
        self.stopped, self.stop_string = True, self._outside.match
        return before, ""

    def _begin_call(self) -> None:
        self._inside, self._call = StopStringBuffer(self._syntax.inside), []
        self._open, self._taken = OpenBlock(shape_named(self._format.shape)), 0

    def _ends_call(self) -> bool:
        """Return whether the mark after the text so far ends the call."""
        text = "".join(self._call[self._taken :])
        self._taken = len(self._call)
        return self._open.ends_after(text)

    def _block(self, inside: str, whole: bool) -> Iterator[TextDelta | ToolCallDelta]:
        format = self._format
        written = inside if format.bare and not whole and inside.lstrip()[:1] in ("{", "[") else format.begin + inside
        parsed = parse_calls(written + (format.end if whole else ""), format, self._syntax.schemas)
        if not parsed.calls and whole:
            yield TextDelta(parsed.text)
        for call in parsed.calls:
            yield self._delta(call)

    def _delta(self, call: ToolCall) -> ToolCallDelta:
        index = self.calls
        self.calls += 1
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        return ToolCallDelta(index, f"call_{secrets.token_hex(12)}", call.name, arguments)
