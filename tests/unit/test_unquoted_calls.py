"""The grammar of calls with unquoted keys, which are Gemma 4's: texts that it allows, and schemas that it refuses."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from tokenizers import AddedToken

from tests.support.models.tokenizers import byte_level
from webpte.checkpoints.families import families
from webpte.errors import ConstraintError, InputError
from webpte.llm import Tokenizer, parse_tool_calls
from webpte.llm.constraints import Constraint, GrammarCompiler, GrammarMatcher
from webpte.llm.tool_grammar import MAX_CALLS, tool_grammar

(FORMAT,) = (known for known in families()["gemma4"].tool_formats.values() if known is not None)
Q = '<|"|>'
TREE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
    "required": ["name"],
}
PROPERTIES: dict[str, Any] = {
    "city": {"type": "string", "description": "Where", "format": "city"},
    "Days": {"type": "integer", "minimum": 1, "exclusiveMaximum": 10},
    "any": {},
    "code": {"type": "string", "minLength": 2, "maxLength": 3},
    "deep": {"$ref": "#/$defs/Tree"},
    "labels": {"type": "object", "additionalProperties": {"type": "boolean"}},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "more": {"type": ["number", "null"]},
    "none": {"const": None},
    "same": {"enum": [1, [True, "x"], {"b": 2, "a": ""}]},
    "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "ab", ""]}, "minItems": 1, "maxItems": 2},
}
WEATHER = {"type": "object", "properties": PROPERTIES, "required": ["city"], "$defs": {"Tree": TREE}}
NOW = {"now": {"type": "object", "properties": {"zone": {"type": "string"}}}}
(END,) = byte_level().encode("<|im_end|>", parse_special=True)
TOOLS = {"weather.now": WEATHER, **NOW}


@functools.cache
def compiler(special: bool) -> tuple[Tokenizer, GrammarCompiler]:
    tokenizer = byte_level()
    if special:  # as in safetensors checkpoints; in GGUF files they are not
        markers = [AddedToken(text, special=True) for text in (FORMAT.begin, FORMAT.end, Q)]
        tokenizer.backend_tokenizer.add_special_tokens(markers)
    size = tokenizer.backend_tokenizer.get_vocab_size()
    return tokenizer, GrammarCompiler(tokenizer, size, [END])


def matcher(special: bool, tools: Any, **options: Any) -> GrammarMatcher:
    tokenizer, compiled = compiler(special)
    options = {"required": True, **options}
    return compiled.matcher(Constraint("grammar", tool_grammar(tools, FORMAT, tokenizer, **options)))


def allows(text: str, special: bool, tools: Any = TOOLS, **options: Any) -> bool:
    state = matcher(special, tools, **options)
    try:
        for token in [*compiler(special)[0].encode(text, parse_special=True), END]:
            state.take(token)
    except ConstraintError as error:
        assert error.code == "constraint.token_not_allowed"
        return False
    return True


def call(inside: str, name: str = "weather.now") -> str:
    return f"<|tool_call>call:{name}{{{inside}}}<tool_call|>"


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    ("members", "arguments"),
    [
        (f"city:{Q}Bern{Q}", {"city": "Bern"}),
        (f'city:{Q}{{a}}, [<|"\n\\{Q}', {"city": '{a}, [<|"\n\\'}),
        (
            f"any:[1.5,{{a:null,b_c:{Q}q{Q}}},[],{{}}],city:{Q}{Q},Days:3",
            {"any": [1.5, {"a": None, "b_c": "q"}, [], {}]},
        ),
        (
            f"city:{Q}{Q},code:{Q}äöü{Q},Days:9,labels:{{x:true,y:false}}",
            {"code": "äöü", "labels": {"x": True, "y": False}},
        ),
        (
            f"city:{Q}{Q},deep:{{kids:[{{name:{Q}x{Q}}},{{kids:[],name:{Q}y{Q}}}],name:{Q}z{Q}}}",
            {"deep": {"name": "z", "kids": [{"name": "x"}, {"name": "y", "kids": []}]}},
        ),
        (f"city:{Q}{Q},maybe:null,more:-2,none:null,same:[true,{Q}x{Q}]", {"maybe": None, "same": [True, "x"]}),
        (f"city:{Q}{Q},maybe:{Q}null{Q},more:null,same:{{a:{Q}{Q},b:2}}", {"maybe": "null", "same": {"a": "", "b": 2}}),
        (f"city:{Q}{Q},tags:[{Q}ab{Q},{Q}{Q}]", {"tags": ["ab", ""]}),
    ],
)
def test_unquoted_grammar_allows_valid_calls(special, members, arguments):
    text = call(members)
    assert allows(text, special)
    (parsed,) = parse_tool_calls(text, FORMAT).calls
    assert parsed.name == "weather.now"
    assert {name: parsed.arguments[name] for name in arguments} == arguments


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "It rains.",
        call(f"city:{Q}B{Q}", "weather"),
        call(""),
        call("city:Bern"),
        call('city:"Bern"'),
        call(f"{Q}city{Q}:{Q}Bern{Q}"),
        call(f"city:{Q}B{Q},"),
        call(f"city: {Q}B{Q}"),
        call(f"city:{Q}B{Q},city:{Q}B{Q}"),
        call(f"city:{Q}B{Q},Days:0"),
        call(f"city:{Q}B{Q},Days:10"),
        call(f"Days:1,city:{Q}B{Q}"),
        call(f"city:{Q}B{Q},code:{Q}a{Q}"),
        call(f"city:{Q}B{Q},code:{Q}abcd{Q}"),
        call(f"city:{Q}B{Q},deep:{{kids:[]}}"),
        call(f"city:{Q}B{Q},labels:{{x:1}}"),
        call(f"city:{Q}B{Q},maybe:1"),
        call(f"city:{Q}B{Q},tags:[]"),
        call(f"city:{Q}B{Q},tags:[{Q}a{Q},{Q}a{Q},{Q}a{Q}]"),
        call(f"city:{Q}B{Q},tags:[{Q}abc{Q}]"),
        call(f"city:{Q}B{Q},other:1"),
        call(f"city:{Q}a{Q}b{Q}"),
        call(f"city:{Q}a{Q}")[:-1],
    ],
)
def test_unquoted_grammar_refuses_other_text(special, text):
    assert not allows(text, special)


def test_unquoted_strings_cannot_spell_the_end_of_a_call():
    tokenizer, state = compiler(True)[0], matcher(True, TOOLS)
    *first, last = tokenizer.encode(FORMAT.end)  # as ordinary text
    for token in [*tokenizer.encode(f"<|tool_call>call:now{{zone:{Q}", parse_special=True), *first]:
        state.take(token)
    with pytest.raises(ConstraintError):
        state.take(last)


@pytest.mark.parametrize("special", [False, True])
def test_unquoted_calls_may_be_several_if_parallel(special):
    several = call("", "now") * MAX_CALLS
    assert allows(several, special) and not allows(several + call("", "now"), special)
    assert not allows(call("", "now") * 2, special, NOW, parallel=False)
    assert allows("It rains.", special, NOW, required=False)
    assert allows("Let me see." + several, special, NOW, required=False)


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "string", "pattern": "a+"}, "'pattern'"),
        ({"oneOf": [{"type": "string"}]}, "'oneOf'"),
        ({"anyOf": [{"type": "string"}], "minLength": 1}, "'minLength'"),
        ({"anyOf": []}, "anyOf"),
        ({"allOf": [{}, {}]}, "allOf"),
        ({"type": "integer", "minLength": 1}, "'minLength'"),
        ({"type": "string", "minLength": -1}, "-1"),
        ({"type": "text"}, "text"),
        ({"type": 3}, "3"),
        ({"enum": ["a"], "type": "integer"}, "enum"),
        ({"enum": [f"a{Q}"]}, "cannot write the string"),
        ({"const": FORMAT.end}, "cannot write the string"),
        ({"$ref": "#/properties/a"}, "#/properties/a"),
        ({"$ref": 3}, "3"),
        ({"properties": {"a b": {}}}, "'a b'"),
        ({"properties": []}, "properties"),
        (False, "false"),
    ],
)
def test_unquoted_grammar_refuses_schemas_it_cannot_hold_calls_to(schema, words):
    with pytest.raises(InputError) as caught:
        tool_grammar({"now": {"type": "object", "properties": {"a": schema}}}, FORMAT, byte_level())
    assert caught.value.argument == "tools"
    assert words in json.dumps(str(caught.value), ensure_ascii=False).replace('\\"', '"')
