"""The grammar of a response with tool calls, in llguidance's Lark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .call_rules import escaped, json_value
from .tokenizer import Tokenizer
from .tool_shapes import CallRules, Schemas, ToolFormat, marker, shape_named

MAX_CALLS = 16  # in one response


def tool_grammar(
    schemas: Schemas,
    format: ToolFormat,
    tokenizer: Tokenizer,
    *,
    required: bool = False,
    parallel: bool = True,
    content: Mapping[str, Any] | None = None,
) -> str:
    """Return the grammar of a response: text with calls, or calls alone if they are required.

    `content` is a JSON schema for a response without calls. In a response that no token limit cuts short, every call is
    valid against the schema of its tool.
    """
    shape, rules = shape_named(format.shape), []
    for at, (name, schema) in enumerate(schemas.items()):
        own = CallRules(f"call_{at}", format, tokenizer)
        rules += [f"call_{at}: {shape.grammar(name, schema, own)}", *own.rules]
    any_call = " | ".join(f"call_{at}" for at in range(len(schemas)))
    begin, end = marker(format.begin, tokenizer), marker(format.end, tokenizer)
    rules += [
        f"inside: {shape.block(any_call, MAX_CALLS if parallel else 1)}",
        f"block: {begin} inside {end}".rstrip(),
    ]
    again = parallel and shape.repeats(format)
    rules.append(f"calls: block{{1,{MAX_CALLS}}}" if again else "calls: block")
    alone = "calls"
    if format.bare:
        rules.append(f"bare: {any_call}")
        alone += " | bare"
    if required:
        return _lark(f"start: {alone}", rules)
    if content is not None:
        return _lark(f"start: {alone} | {json_value(content)}", rules)
    return _lark(f"start: {_free(format, begin, end, again, rules)}" + (" | bare" if format.bare else ""), rules)


def _free(format: ToolFormat, begin: str, end: str, again: bool, rules: list[str]) -> str:
    """Return the rule for any text followed by calls, and add the rules it needs."""
    not_bare = r" & ~/[ \t\r\n]*[\{\[](.|\n)*/" if format.bare else ""
    if begin.startswith("<["):  # a special token, which no text holds
        rules.append(f"TEXT: /(.|\\n)+/{not_bare}")
        return "TEXT? calls?"
    marked = escaped(format.begin)
    rules += [
        f"UPTO: /(.|\\n)*{marked}/{not_bare}",
        "upto[lazy]: UPTO",
        f"TEXT: /(.|\\n)+/ & ~/(.|\\n)*{marked}(.|\\n)*/{not_bare}",
    ]
    repeated = f" block{{0,{MAX_CALLS - 1}}}" if again else ""
    return f"TEXT? | upto inside {end}{repeated}"


def _lark(start: str, rules: Sequence[str]) -> str:
    return "\n".join((start, *rules)) + "\n"
