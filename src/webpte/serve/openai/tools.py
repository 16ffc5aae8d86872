"""Tools that a request offers, and the grammar by which an answer may call them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ...llm.constraints import EXACT, LAYOUT, without_excluded_integers
from ...llm.tokenizer import Tokenizer
from ...llm.tools import ToolFormat
from ..config import Config
from ..failures import Refusal
from .fields import Fields

NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
MOST_CALLS = 16  # in one answer
Choice = Literal["none", "auto", "required"]


@dataclass(frozen=True)
class Tool:
    """A function that the client can call."""

    name: str
    description: str
    parameters: Mapping[str, Any]  # a JSON schema of an object

    def for_template(self) -> dict[str, Any]:
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}


@dataclass(frozen=True)
class Offer:
    """The tools of a request, and whether they must be called."""

    tools: tuple[Tool, ...] = ()  # what the template shows
    callable: tuple[Tool, ...] = ()  # what may be called: all of them, or the one that was named
    choice: Choice = "none"
    parallel: bool = True

    def for_template(self) -> list[dict[str, Any]] | None:
        return [tool.for_template() for tool in self.tools] if self.choice != "none" else None


def offer_from(fields: Fields, config: Config, *, flat: bool = False) -> Offer:
    """The fields `tools`, `tool_choice` and `parallel_tool_calls`. `flat` is how /v1/responses writes a function."""
    given = fields.listed("tools", config.max_tools, [])
    if len(json.dumps(given)) > config.max_schema_bytes:
        raise Refusal(400, f"tools take more than {config.max_schema_bytes} bytes (max_schema_bytes)", param="tools")
    tools = tuple(_tool(Fields(entry, f"tools[{at}]"), flat) for at, entry in enumerate(given))
    names = [tool.name for tool in tools]
    if double := {name for name in names if names.count(name) > 1}:
        raise Refusal(400, f"tools name {', '.join(sorted(double))} more than once", param="tools")
    parallel = fields.flag("parallel_tool_calls", True)
    choice = fields.raw("tool_choice", "auto" if tools else "none")
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            raise fields.wrong("tool_choice", "none, auto, required or a function by its name")
        if choice == "required" and not tools:
            raise Refusal(400, "tool_choice is required, and there are no tools", param="tool_choice")
        return Offer(tools, tools, choice if tools else "none", parallel)  # type: ignore[arg-type]
    named = _named(fields.inside("tool_choice"), flat)
    chosen = tuple(tool for tool in tools if tool.name == named)
    if not chosen:
        raise Refusal(400, f"tool_choice names {named!r}, which is not among the tools", param="tool_choice")
    return Offer(tools, chosen, "required", parallel=False)


def _named(choice: Fields, flat: bool) -> str:
    choice.choice("type", ("function",))
    name = (choice if flat else choice.inside("function")).text("name")
    choice.end()
    return str(name)


def _tool(entry: Fields, flat: bool) -> Tool:
    entry.choice("type", ("function",))
    function = entry if flat else entry.inside("function")
    name = function.text("name")
    if not NAME.fullmatch(name):
        raise function.wrong("name", "1 to 64 letters, digits, dots, dashes or underscores")
    description = function.text("description", "")
    parameters = function.raw("parameters", {"type": "object", "properties": {}})
    if not isinstance(parameters, dict) or parameters.get("type", "object") != "object":
        raise function.wrong("parameters", "a JSON schema of an object")
    function.ignore("strict")  # answers always follow the schema
    function.end()
    entry.end()
    return Tool(name, description, {"type": "object", **parameters})


def grammar(offer: Offer, format: ToolFormat, tokenizer: Tokenizer, content: Mapping[str, Any] | None = None) -> str:
    """In llguidance's form of Lark: text with calls in it, or with a choice of `required` calls alone.

    `content` is a JSON schema that an answer without calls must follow. An answer that a token limit does not cut
    short has only calls that are valid by their tools' schemas.
    """
    rules = [f"call_{at}: {_body(tool, format)}" for at, tool in enumerate(offer.callable)]
    any_call = " | ".join(f"call_{at}" for at in range(len(rules)))
    begin, end = _marker(format.begin, tokenizer), _marker(format.end, tokenizer)
    rules += [f"inside: {_inside(format, any_call, offer.parallel)}", f"block: {begin} inside {end}".rstrip()]
    again = offer.parallel and format.end and format.shape not in ("list", "python")
    rules.append(f"calls: block{{1,{MOST_CALLS}}}" if again else "calls: block")
    alone = "calls"
    if format.bare:
        rules.append(f"bare: {any_call}")
        alone += " | bare"
    if offer.choice == "required":
        return _lark(f"start: {alone}", rules)
    if content is not None:
        return _lark(f"start: {alone} | {_json(content)}", rules)
    return _lark(f"start: {_free(format, begin, end, bool(again), rules)}" + (" | bare" if format.bare else ""), rules)


def _free(format: ToolFormat, begin: str, end: str, again: bool, rules: list[str]) -> str:
    """Text of any kind, and calls behind it; adds the rules for it."""
    not_bare = r" & ~/[ \t\r\n]*[\{\[](.|\n)*/" if format.bare else ""
    if begin.startswith("<["):  # a special token, which no text holds
        rules.append(f"TEXT: /(.|\\n)+/{not_bare}")
        return "TEXT? calls?"
    marker = re.sub(r"([][(){}.*+?|^$/\\])", r"\\\1", format.begin)
    rules += [
        f"upto[lazy]: /(.|\\n)*{marker}/",
        f"TEXT: /(.|\\n)+/ & ~/(.|\\n)*{marker}(.|\\n)*/{not_bare}",
    ]
    behind = f" block{{0,{MOST_CALLS - 1}}}" if again else ""
    return f"TEXT? | upto inside {end}{behind}"


def _lark(start: str, rules: Sequence[str]) -> str:
    return "\n".join((start, *rules)) + "\n"


def _marker(text: str, tokenizer: Tokenizer) -> str:
    """A marker as a special token where it is one, else as text; nothing for none."""
    if not text:
        return ""
    number = tokenizer.token_id(text)
    if number is not None and number in tokenizer.special_ids:
        return f"<[{number}]>"
    return json.dumps(text, ensure_ascii=False)


def _inside(format: ToolFormat, any_call: str, parallel: bool) -> str:
    """What stands between the markers."""
    if format.shape == "object":
        return f'"\\n"? ({any_call}) "\\n"?'
    if format.shape == "parameters":
        return f'"\\n" ({any_call}) "\\n"'
    several = f' (", " ({any_call})){{0,{MOST_CALLS - 1}}}' if parallel else ""
    return f'"[" ({any_call}){several} "]"'


def _body(tool: Tool, format: ToolFormat) -> str:
    """One call of one tool."""
    if format.shape in ("object", "list"):
        opening = f"{{{json.dumps(format.name)}: {json.dumps(tool.name)}, {json.dumps(format.arguments)}: "
        return f"{json.dumps(opening)} {_json(_closed(tool.parameters))} {json.dumps('}')}"
    return _python(tool) if format.shape == "python" else _parameters(tool)


def _closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments that the tool does not name help nobody, and small models love to make some up."""
    named = "properties" in schema and "patternProperties" not in schema
    return {**({"additionalProperties": False} if named else {}), **schema}


def _python(tool: Tool) -> str:
    """`name(city="Bern", days=3)`; the values of literals are those of JSON."""
    if not all(part.isidentifier() for part in tool.name.split(".")):
        raise Refusal(400, f"the model writes calls as Python does, which cannot name {tool.name!r}", param="tools")
    parts, first = [], True
    required = set(tool.parameters.get("required", ()))
    ordered = sorted(_properties(tool), key=lambda item: item[0] not in required)
    if ordered and ordered[0][0] not in required:  # a first one that may be missing would leave a comma behind
        required.add(ordered[0][0])
    for name, schema in ordered:
        comma = "" if first else ", "
        value = f"{json.dumps(f'{comma}{name}=')} {schema}"
        parts.append(value if name in required else f"({value})?")
        first = False
    return " ".join([json.dumps(f"{tool.name}("), *parts, '")"'])


def _parameters(tool: Tool) -> str:
    """`<function=name>`, with a value of JSON for each `<parameter=name>`."""
    required = set(tool.parameters.get("required", ()))
    parts = []
    for name, schema in _properties(tool):
        value = f'{json.dumps(f"<parameter={name}>")} "\\n" {schema} {json.dumps(chr(10) + "</parameter>" + chr(10))}'
        parts.append(value if name in required else f"({value})?")
    return " ".join([json.dumps(f"<function={tool.name}>\n"), *parts, '"</function>"'])


def _properties(tool: Tool) -> list[tuple[str, str]]:
    """Each with its schema as a grammar; what all may refer to goes along with each."""
    shared = {key: tool.parameters[key] for key in ("$defs", "definitions") if key in tool.parameters}
    found = []
    for name, schema in dict(tool.parameters.get("properties", {})).items():
        if not name.isidentifier():
            raise Refusal(400, f"the model cannot write an argument named {name!r} in its calls", param="tools")
        found.append((name, _json({**shared, **schema} if isinstance(schema, dict) else schema)))
    return found


def _json(schema: Any) -> str:
    """A JSON schema inside a grammar, written out as `json.dumps` writes."""
    exact = without_excluded_integers(schema)
    laid_out = {"x-guidance": {**LAYOUT, **EXACT}, **exact} if isinstance(exact, dict) else exact
    return f"%json {json.dumps(laid_out, ensure_ascii=True)}"
