"""Tools: those that a request offers, the grammar of tool calls, and the parser of a response with calls."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...llm.engine.output import Piece
from ...llm.engine.stop_strings import StopStringBuffer, StopStrings
from ...llm.prompts import TemplateFunction, TemplateTool
from ...llm.settings import GenerateSettings, stop_strings
from ...llm.text_model import TextModel
from ...llm.tokenizer import TextStream, Tokenizer
from ...llm.tools import ToolCall, ToolFormat, parse_tool_calls
from ...typing import JsonObject
from ..bodies import shown
from ..config import Config
from ..errors import ApiError
from .call_values import escaped, json_value, marker, unquoted_value
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

MAX_CALLS = 16  # in one response
LISTS = ("list", "keyed", "python", "lines")  # shapes of a block with all calls
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
    settings["grammar"] = grammar(tools, format, text.tokenizer, schema)
    stop = stop_strings(settings.pop("stop", ()))
    return CallSyntax(format, StopStrings((format.begin, *stop)), StopStrings((format.end or format.begin,)))


# -- grammar ---------------------------------------------------------------------------------------------------------


def grammar(
    tools: ToolConfig, format: ToolFormat, tokenizer: Tokenizer, content: Mapping[str, Any] | None = None
) -> str:
    """Return the grammar of a response in llguidance's Lark: text with calls, or calls alone if they are required.

    `content` is a JSON schema for a response without calls. In a response that no token limit cuts short, every call is
    valid against the schema of its tool.
    """
    rules = [f"call_{at}: {_body(tool, format, tokenizer, f'call_{at}')}" for at, tool in enumerate(tools.callable)]
    any_call = " | ".join(f"call_{at}" for at in range(len(rules)))
    begin, end = marker(format.begin, tokenizer), marker(format.end, tokenizer)
    rules += [f"inside: {_inside(format, any_call, tools.parallel)}", f"block: {begin} inside {end}".rstrip()]
    again = tools.parallel and (format.shape == "named" or (format.end and format.shape not in LISTS))
    rules.append(f"calls: block{{1,{MAX_CALLS}}}" if again else "calls: block")
    alone = "calls"
    if format.bare:
        rules.append(f"bare: {any_call}")
        alone += " | bare"
    if tools.choice == "required":
        return _lark(f"start: {alone}", rules)
    if content is not None:
        return _lark(f"start: {alone} | {json_value(content)}", rules)
    return _lark(f"start: {_free(format, begin, end, bool(again), rules)}" + (" | bare" if format.bare else ""), rules)


def _free(format: ToolFormat, begin: str, end: str, again: bool, rules: list[str]) -> str:
    """Return the rule for any text followed by calls, and add the rules it needs."""
    not_bare = r" & ~/[ \t\r\n]*[\{\[](.|\n)*/" if format.bare else ""
    if begin.startswith("<["):  # a special token, which no text holds
        rules.append(f"TEXT: /(.|\\n)+/{not_bare}")
        return "TEXT? calls?"
    marked = escaped(format.begin)
    rules += [
        f"upto[lazy]: /(.|\\n)*{marked}/",
        f"TEXT: /(.|\\n)+/ & ~/(.|\\n)*{marked}(.|\\n)*/{not_bare}",
    ]
    repeated = f" block{{0,{MAX_CALLS - 1}}}" if again else ""
    return f"TEXT? | upto inside {end}{repeated}"


def _lark(start: str, rules: Sequence[str]) -> str:
    return "\n".join((start, *rules)) + "\n"


def _inside(format: ToolFormat, any_call: str, parallel: bool) -> str:
    """Return the rule between the markers."""
    if format.shape == "object":
        return f'"\\n"? ({any_call}) "\\n"?'
    if format.shape == "parameters":
        return f'"\\n" ({any_call}) "\\n"'
    if format.shape in ("named", "unquoted"):
        return f"({any_call})"
    separator = "\n" if format.shape == "lines" else ", "
    several = f" ({json.dumps(separator)} ({any_call})){{0,{MAX_CALLS - 1}}}" if parallel else ""
    if format.shape == "lines":
        return f'"\\n"? ({any_call}){several} "\\n"?'
    return f'"[" ({any_call}){several} "]"'


def _body(tool: Function, format: ToolFormat, tokenizer: Tokenizer, rule: str) -> str:
    """Return the body of the rule of one call of one tool, and the rules that it needs, whose names begin with its."""
    if format.shape == "unquoted":
        opening = json.dumps(f"call:{tool.name}")
        return f"{opening} {unquoted_value(_parameters_schema(tool), rule, format.end, tokenizer)}"
    if format.shape == "named":
        return f"{json.dumps(tool.name)} {marker(format.arguments, tokenizer)} {_arguments(tool)}"
    if format.shape == "keyed":
        return f"{json.dumps(f'{{{json.dumps(tool.name)}: ')} {_arguments(tool)} {json.dumps('}')}"
    if format.shape in ("object", "list"):
        opening = f"{{{json.dumps(format.name)}: {json.dumps(tool.name)}, {json.dumps(format.arguments)}: "
        return f"{json.dumps(opening)} {_arguments(tool)} {json.dumps('}')}"
    return _python(tool) if format.shape in ("python", "lines") else _parameters(tool)


def _arguments(tool: Function) -> str:
    return json_value(_closed(_parameters_schema(tool)))


def _closed(schema: JsonObject) -> JsonObject:
    """Return the schema without additional properties, which small models like to invent."""
    named = "properties" in schema and "patternProperties" not in schema
    return {**({"additionalProperties": False} if named else {}), **schema}


def _python(tool: Function) -> str:
    """Return the grammar of `name(city="Bern", days=3)`. Literals have the values of JSON."""
    if not all(part.isidentifier() for part in tool.name.split(".")):
        raise ApiError(
            400, f"tools: the model writes calls in Python, where {tool.name!r} is not a name", param="tools"
        )
    parts, first = [], True
    required = set(tool.parameters.get("required", ()))
    ordered = sorted(_properties(tool), key=lambda item: item[0] not in required)
    if ordered and ordered[0][0] not in required:  # an absent first argument would leave a comma
        required.add(ordered[0][0])
    for name, schema in ordered:
        comma = "" if first else ", "
        value = f"{json.dumps(f'{comma}{name}=')} {schema}"
        parts.append(value if name in required else f"({value})?")
        first = False
    return " ".join([json.dumps(f"{tool.name}("), *parts, '")"'])


def _parameters(tool: Function) -> str:
    """Return the grammar of `<function=name>`, with a JSON value for each `<parameter=name>`."""
    required = set(tool.parameters.get("required", ()))
    parts = []
    for name, schema in _properties(tool):  # some families write values on lines of their own
        value = f'{json.dumps(f"<parameter={name}>")} "\\n"? {schema} "\\n"? "</parameter>\\n"'
        parts.append(value if name in required else f"({value})?")
    return " ".join([json.dumps(f"<function={tool.name}>\n"), *parts, '"</function>"'])


def _properties(tool: Function) -> list[tuple[str, str]]:
    """Return each property with its schema as a grammar. Shared definitions are copied into each."""
    shared = {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
    properties = []
    for name, schema in dict(tool.parameters.get("properties", {})).items():
        if not name.isidentifier():
            raise ApiError(400, f"tools: the model cannot write an argument named {name!r}", param="tools")
        properties.append((name, json_value({**shared, **schema} if isinstance(schema, dict) else schema)))
    return properties


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
                text = self._inside.held.removeprefix(self._format.end or self._format.begin)
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

    def _block(self, inside: str, whole: bool) -> Iterator[TextDelta | ToolCallDelta]:
        format = self._format
        written = inside if format.bare and not whole and inside.lstrip()[:1] in ("{", "[") else format.begin + inside
        parsed = parse_tool_calls(written + (format.end if whole else ""), format)
        if not parsed.calls and whole:
            yield TextDelta(parsed.text)
        for call in parsed.calls:
            yield self._delta(call)

    def _delta(self, call: ToolCall) -> ToolCallDelta:
        index = self.calls
        self.calls += 1
        arguments = json.dumps(dict(call.arguments), ensure_ascii=False)
        return ToolCallDelta(index, f"call_{secrets.token_hex(12)}", call.name, arguments)
