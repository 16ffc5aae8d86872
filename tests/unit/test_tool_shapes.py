"""Every shape of tool calls: rendered by a template, allowed by the grammar, and read back, whole and in pieces."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import AddedToken

from tests.support.harness.gate import slow
from tests.support.harness.random_tools import TEMPLATES, Case, RandomTools
from tests.support.models.tokenizers import byte_level
from webpte.checkpoints.families import families
from webpte.errors import ConstraintError, InputError
from webpte.llm import Tokenizer, parse_tool_calls
from webpte.llm.constraints import Constraint, GrammarCompiler
from webpte.llm.engine.output import Piece
from webpte.llm.engine.stop_strings import StopStrings
from webpte.llm.prompts import render_chat
from webpte.llm.tool_grammar import tool_grammar
from webpte.llm.tool_shapes import ToolCall, ToolFormat, shape_names
from webpte.serve.openai.tools import CallSyntax, TextDelta, ToolCallDelta, ToolCallParser

FORMATS = sorted(
    {format for family in families().values() for format in family.tool_formats.values() if format is not None},
    key=lambda format: (format.shape, format.begin, format.end),
)
CASES = 200  # of each shape by night


@functools.cache
def compiler(markers: tuple[str, ...]) -> tuple[Tokenizer, GrammarCompiler, int]:
    """Return a tokenizer with these special tokens, the compiler of its grammars, and the token that ends a text."""
    tokenizer = byte_level()
    tokenizer.backend_tokenizer.add_special_tokens([AddedToken(text, special=True) for text in markers if text])
    (end,) = tokenizer.encode("<|im_end|>", parse_special=True)
    return tokenizer, GrammarCompiler(tokenizer, tokenizer.backend_tokenizer.get_vocab_size(), [end]), end


def markers_of(format: ToolFormat, special: bool) -> tuple[str, ...]:
    separator = format.arguments if format.shape == "named" else ""
    return (format.begin, format.end, separator) if special else ()


def rendered(case: Case, format: ToolFormat) -> str:
    """Return the calls of a turn as a template of the format writes them."""
    calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in case.calls]
    return render_chat(
        TEMPLATES[format.shape],
        [{"role": "assistant", "tool_calls": calls}],
        {name: value for name, value in format.to_json().items()},  # type: ignore[misc]
    )


def allowed(text: str, case: Case, format: ToolFormat, special: bool, **options: Any) -> str:
    """Return the text up to the first token that the grammar does not allow; empty if it allows all of them."""
    tokenizer, compiled, end = compiler(markers_of(format, special))
    matcher = compiled.matcher(Constraint("grammar", tool_grammar(case.schemas, format, tokenizer, **options)))
    tokens = tokenizer.encode(text, parse_special=True)
    for at, token in enumerate([*tokens, end]):
        try:
            matcher.take(token)
        except ConstraintError:
            return f"stopped after {tokenizer.decode(tokens[:at], specials=True)!r}"
    return ""


def streamed(text: str, case: Case, format: ToolFormat, special: bool) -> Iterator[ToolCall | str]:
    """Yield the text and the calls of a response that arrives token by token."""
    tokenizer, _, end = compiler(markers_of(format, special))
    model: Any = SimpleNamespace(tokenizer=tokenizer, stop_tokens=frozenset([end]))
    inside = StopStrings((format.end or format.begin,))
    parser = ToolCallParser(model, CallSyntax(format, case.schemas, StopStrings((format.begin,)), inside))
    deltas: list[TextDelta | ToolCallDelta] = []
    for token in [*tokenizer.encode(text, parse_special=True), end]:
        deltas += parser.push(Piece("", token))
    deltas += parser.flush()
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            yield ToolCall(delta.name, json.loads(delta.arguments))
        elif delta.text:
            yield delta.text


def typed(calls: Any) -> list[tuple[str, str]]:
    """Return calls so that 1, 1.0, True and "1" differ. The order of arguments is that of the format."""
    return [(call.name, json.dumps(call.arguments, sort_keys=True)) for call in calls]


def tools_of(case: Case) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": n, "parameters": s}} for n, s in case.schemas.items()]


@pytest.mark.parametrize("count", [12, slow(CASES)])
@pytest.mark.parametrize("shape", sorted(TEMPLATES))
def test_random_calls_are_rendered_allowed_and_read_back(shape, count):
    formats = [format for format in FORMATS if format.shape == shape]
    for number in range(count):
        format, special = formats[number % len(formats)], number // len(formats) % 2 == 1
        case = RandomTools(f"{shape} {number}", format, markers=not special).case()
        text = rendered(case, format)
        assert not allowed(text, case, format, special, required=True), (text, case)
        said = "" if format.bare else "Let me see: "
        assert not allowed(said + text, case, format, special), (text, case)
        parsed = parse_tool_calls(said + text, format, tools_of(case))
        assert (parsed.text, typed(parsed.calls)) == (said.strip(), typed(case.calls)), text
        pieces = list(streamed(said + text, case, format, special))
        assert typed(each for each in pieces if isinstance(each, ToolCall)) == typed(case.calls), text
        assert "".join(each for each in pieces if isinstance(each, str)).strip() == said.strip(), text


def test_shapes_have_templates_and_families():
    assert set(shape_names()) == set(TEMPLATES) == {format.shape for format in FORMATS}


# -- what a grammar allows and refuses --------------------------------------------------------------------------------

CODER = ToolFormat("parameters", "<tool_call>", "</tool_call>")
LIQUID = ToolFormat("python", "<|tool_call_start|>", "<|tool_call_end|>")
DEFINITIONS = {"Text": {"type": "string", "maxLength": 2}, "Loop": {"$ref": "#/$defs/Loop"}}


def accepts(format: ToolFormat, text: str, properties: dict[str, Any], required: tuple[str, ...] = ()) -> bool:
    schema = {"type": "object", "properties": properties, "required": list(required), "$defs": DEFINITIONS}
    return not allowed(text, Case({"f": schema}, []), format, False, required=True)


def raw(text: str) -> str:
    return f"<tool_call>\n<function=f>\n<parameter=a>\n{text}\n</parameter>\n</function>\n</tool_call>"


@pytest.mark.parametrize(
    ("schema", "texts", "others"),
    [
        ({"type": "string"}, ["", "a.py", "print(1)\nprint(2)", '"a"', "\n", "</tool_call>"], ["a</parameter>b"]),
        ({"type": "string", "minLength": 1, "maxLength": 3}, ["ä", "abc", "\n\n\n"], ["", "abcd"]),
        ({"type": "string", "pattern": "^a/[0-9]+$"}, ["a/1", "a/23"], ["a/", "xa/1", "a/1x"]),
        ({"type": "string", "pattern": "[0-9]", "maxLength": 3}, ["a1b", "1"], ["abc", "abc1"]),
        ({"enum": ["a", "ab", 3, None, "x\ny"]}, ["a", "ab", "3", "null", "x\ny"], ["b", "", "true", '"a"']),
        ({"const": "a b"}, ["a b"], ["a"]),
        ({"$ref": "#/$defs/Text"}, ["ab"], ["abc"]),
        ({"allOf": [{"$ref": "#/$defs/Text"}], "description": "short"}, ["ab"], ["abc"]),
        ({"anyOf": [{"enum": ["a"]}, {"type": "null"}]}, ["a", "null", "None"], ["b", "3"]),
        ({"type": ["string", "integer"], "maxLength": 2}, ["ab", "12345"], ["abc", "1.5"]),
        ({"type": ["string", "null"]}, ["null", "None", "anything\nat all"], []),
        ({}, ["anything", "3"], []),
        ({"type": "boolean"}, ["true", "True", "False"], ["yes", "null", "None"]),
        ({"type": "integer", "minimum": 3}, ["3", "10"], ["2", "3.5", "three", '"3"']),
        ({"type": "array", "items": {"type": "string"}}, ['["a", "b"]', "[]"], ["a", "['a']", "[1]"]),
        ({"type": "object", "properties": {"b": {"type": "boolean"}}}, ['{"b": true}'], ['{"b": True}', "x"]),
        ({"enum": [True, 1]}, ["true", "True", "1"], ["False", "2"]),
    ],
)  # fmt: skip
def test_raw_arguments_are_allowed_as_templates_write_them(schema, texts, others):
    assert [text for text in texts if not accepts(CODER, raw(text), {"a": schema}, ("a",))] == []
    assert [text for text in others if accepts(CODER, raw(text), {"a": schema}, ("a",))] == []


def test_optional_arguments_may_be_left_out_and_keep_the_order_of_the_schema():
    properties = {"from": {"type": "string"}, "to": {"type": "string"}, "class": {"type": "boolean"}}
    for inside in ("", 'from="a"', 'to="b"', "class=True", 'from="a", class=true', 'from="a", to="b", class=false'):
        assert accepts(LIQUID, f"<|tool_call_start|>[f({inside})]<|tool_call_end|>", properties), inside
    for inside in ('to="a", from="b"', 'from="a",', ', to="b"', "from=a", 'from="a", from="b"', 'other="a"'):
        assert not accepts(LIQUID, f"<|tool_call_start|>[f({inside})]<|tool_call_end|>", properties), inside
    assert not accepts(LIQUID, "<|tool_call_start|>[f()]<|tool_call_end|>", properties, ("to",))
    assert accepts(LIQUID, '<|tool_call_start|>[f(other="x")]<|tool_call_end|>', {}, ("other",))


@pytest.mark.parametrize(
    ("format", "name", "schema", "words"),
    [
        (LIQUID, "a b", {}, "'a b'"),
        (LIQUID, "a=", {}, "'a='"),
        (CODER, "a>b", {}, "'a>b'"),
        (CODER, "a", {"enum": ["x</parameter>"]}, "cannot write the string"),
        (CODER, "a", {"$ref": "#/$defs/Loop"}, "refers to itself"),
        (CODER, "a", {"$ref": "#/$defs/Nothing"}, "Nothing"),
        (CODER, "a", {"allOf": [{"type": "string"}, {"minLength": 1}]}, "allOf"),
        (CODER, "a", {"anyOf": [{"type": "string"}], "minLength": 1}, "anyOf"),
        (CODER, "a", {"type": "string", "pattern": 3}, "pattern"),
        (CODER, "a", {"type": "string", "minLength": -1}, "minLength"),
    ],
)
def test_schemas_that_a_format_cannot_be_held_to_are_refused(format, name, schema, words):
    tokenizer, _, _ = compiler(())
    schemas = {"f": {"type": "object", "properties": {name: schema}, "$defs": DEFINITIONS}}
    with pytest.raises(InputError) as caught:
        tool_grammar(schemas, format, tokenizer)
    assert caught.value.argument == "tools" and words in str(caught.value)
