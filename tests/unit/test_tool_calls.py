"""Calls of tools, as families of models write them: read back from texts, and asked to chat templates."""

from __future__ import annotations

import json

import pytest

from tests.support.harness.errors import raises
from webpte import FormatError, InputError
from webpte.llm import ToolCall, ToolFormat, parse_tool_calls
from webpte.llm.prompts import render_chat

HERMES = ToolFormat("object", "<tool_call>", "</tool_call>")
LLAMA = ToolFormat("object", "<|python_tag|>", bare=True, arguments="parameters")
MISTRAL = ToolFormat("list", "[TOOL_CALLS]")
PHI = ToolFormat("list", "<|tool_call|>", "<|/tool_call|>")
LIQUID = ToolFormat("python", "<|tool_call_start|>", "<|tool_call_end|>")
CODER = ToolFormat("parameters", "<tool_call>", "</tool_call>")
MINISTRAL = ToolFormat("named", "[TOOL_CALLS]", arguments="[ARGS]")
APERTUS = ToolFormat("keyed", "<|tools_prefix|>", "<|tools_suffix|>")
OLMO = ToolFormat("lines", "<function_calls>", "</function_calls>")
GEMMA = ToolFormat("unquoted", "<|tool_call>", "<tool_call|>")
FORMATS = (HERMES, LLAMA, MISTRAL, PHI, LIQUID, CODER, MINISTRAL, APERTUS, OLMO, GEMMA)

CALLS = (
    ToolCall("weather", {"city": 'Zürich "Nord"', "days": 3, "wind": True}),
    ToolCall("time.now", {"zones": ["UTC", "CET"], "how": {"utc": None}}),
)


def written(call, format):
    """Return a call as the templates of a family put it into a conversation."""
    if format.shape in ("python", "lines"):
        return f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})"
    if format.shape == "parameters":
        texts = ((n, v if isinstance(v, str) else json.dumps(v)) for n, v in call.arguments.items())
        inside = "".join(f"<parameter={name}>\n{text}\n</parameter>\n" for name, text in texts)
        return f"\n<function={call.name}>\n{inside}</function>\n"
    if format.shape == "unquoted":
        return f"call:{call.name}{unquoted(call.arguments)}"
    if format.shape == "named":
        return f"{call.name}{format.arguments}{json.dumps(call.arguments, ensure_ascii=False)}"
    if format.shape == "keyed":
        return json.dumps({call.name: call.arguments}, ensure_ascii=False)
    return json.dumps({format.name: call.name, format.arguments: call.arguments}, ensure_ascii=False)


def unquoted(value):
    """Return a value as Gemma 4's template writes it."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{unquoted(value[key])}' for key in sorted(value))}}}"
    if isinstance(value, list):
        return f"[{','.join(map(unquoted, value))}]"
    return f'<|"|>{value}<|"|>' if isinstance(value, str) else json.dumps(value)


def answer(calls, format):
    texts = [written(call, format) for call in calls]
    if format.shape in ("list", "keyed", "python"):
        texts = [f"[{', '.join(texts)}]"]
    if format.shape == "lines":
        texts = ["\n".join(texts)]
    return "\n".join(f"{format.begin}{text}{format.end}" for text in texts)


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.begin)
@pytest.mark.parametrize("count", [1, 2])
def test_tool_calls_are_parsed_from_model_text(format, count):
    text = answer(CALLS[:count], format)
    assert parse_tool_calls(text, format) == ("", CALLS[:count])
    assert parse_tool_calls(f"Let me see.\n{text}", format) == ("Let me see.", CALLS[:count])


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.begin)
def test_tool_format_json_round_trips(format):
    assert ToolFormat.from_json(json.loads(json.dumps(format.to_json())), "config.json") == format


def test_tool_calls_object_without_mark_where_format_allows():
    assert parse_tool_calls(' {"name": "now", "parameters": {}}', LLAMA) == ("", (ToolCall("now"),))
    two = '{"name": "now", "parameters": {}}; {"name": "then"}'
    assert parse_tool_calls(two, LLAMA).calls == (ToolCall("now"), ToolCall("then"))
    assert parse_tool_calls('{"name": "now", "arguments": {}}', HERMES).calls == ()


@pytest.mark.parametrize(
    ("text", "format"),
    [
        ("It rains.", HERMES),
        ("  {curly} talk", LLAMA),
        ('<tool_call>{"name": "now", "arguments": {}}', HERMES),  # cut short
        ("<tool_call>{now}</tool_call>", HERMES),
        ('<tool_call>{"name": 3, "arguments": {}}</tool_call>', HERMES),
        ('<tool_call>{"arguments": {}}</tool_call>', HERMES),
        ('<tool_call>"now"</tool_call>', HERMES),
        ('<tool_call>{"name": "now", "arguments": [1]}</tool_call>', HERMES),
        ('[TOOL_CALLS]{"name": "now"}', MISTRAL),
        ("[TOOL_CALLS]now{}", MINISTRAL),
        ("[TOOL_CALLS]now[ARGS][1]", MINISTRAL),
        ('[TOOL_CALLS]now[ARGS]{"a": 1', MINISTRAL),
        ('<|tools_prefix|>["now"]<|tools_suffix|>', APERTUS),
        ('<|tools_prefix|>[{"now": 1}]<|tools_suffix|>', APERTUS),
        ("<|tool_call_start|>[now(1)]<|tool_call_end|>", LIQUID),
        ("<|tool_call_start|>now()<|tool_call_end|>", LIQUID),
        ("<|tool_call_start|>[now(a=b)]<|tool_call_end|>", LIQUID),
        ("<|tool_call_start|>[now(**{'a': 1})]<|tool_call_end|>", LIQUID),
        ("<|tool_call_start|>[now(a=__import__('os'))]<|tool_call_end|>", LIQUID),
        ("<function_calls>now() then()</function_calls>", OLMO),
        ("<function_calls>time = now()</function_calls>", OLMO),
        ("<function_calls>now()", OLMO),
        ("<|tool_call>now{}<tool_call|>", GEMMA),
        ("<|tool_call>call:now{} <|tool_call>", GEMMA),
        ("<|tool_call>call:now{}then{}<tool_call|>", GEMMA),
        ("<|tool_call>call:now{a:UTC}<tool_call|>", GEMMA),
        ("<|tool_call>call:now{a:1,}<tool_call|>", GEMMA),
        ("<|tool_call>call:now{a:1 b:2}<tool_call|>", GEMMA),
        ("<|tool_call>call:now{a 1}<tool_call|>", GEMMA),
        ("<|tool_call>call:now{a:[1,2}<tool_call|>", GEMMA),
        ("<|tool_call>call:now{a:01}<tool_call|>", GEMMA),
        ('<|tool_call>call:now{a:<|"|>b}<tool_call|>', GEMMA),
        ("<|tool_call>call:now[1]<tool_call|>", GEMMA),
        ("<|tool_call>call:now{a:" + "[" * 100_000 + "<tool_call|>", GEMMA),
        ("<tool_call><function=now>stray</function></tool_call>", CODER),
        ("<tool_call>" + "[" * 100_000 + "</tool_call>", HERMES),
        ("<|tool_call_start|>" + "[" * 100_000 + "<|tool_call_end|>", LIQUID),
    ],
)
def test_tool_calls_other_text_stays_text(text, format):
    assert parse_tool_calls(text, format) == (text, ())


def tool(name, properties, **more):
    schema = {"type": "object", "properties": properties, **more}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


def coder_call(text, padding="\n"):
    return f"<tool_call>\n<function=f>\n<parameter=a>{padding}{text}{padding}</parameter>\n</function>\n</tool_call>"


TREE = {"$defs": {"Text": {"type": "string"}, "Loop": {"$ref": "#/$defs/Loop"}}}
LOOKALIKES = (
    "8001",
    "true",
    "null",
    "None",
    '{"a": 1}',
    '"quoted"',
    "1e5",
    "[1, 2]",
    "NaN",
    "Infinity",
    "",
    "\n",
    " x ",
)


@pytest.mark.parametrize("text", [*LOOKALIKES, "a\n</parameter>b", "</tool_call>\n</function>"])
@pytest.mark.parametrize("schema", [{"type": "string"}, {"$ref": "#/$defs/Text"}, {"enum": ["a"]}, {"const": ""}])
def test_raw_arguments_that_are_declared_as_strings_are_strings(text, schema):
    (call,) = parse_tool_calls(coder_call(text), CODER, [tool("f", {"a": schema}, **TREE)]).calls
    assert call == ToolCall("f", {"a": text})


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ({"type": "integer"}, "8001", 8001),
        ({"type": "integer"}, "eight", "eight"),
        ({"type": "number"}, "1e5", 1e5),
        ({"type": "number"}, "1e999", "1e999"),  # no number of JSON's writers
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),  # as templates of Qwen3.5 write it
        ({"type": "null"}, "None", None),
        ({"type": "array"}, "[1, 2]", [1, 2]),
        ({"type": "object"}, '{"a": "1"}', {"a": "1"}),
        ({"type": ["string", "null"]}, "null", None),
        ({"type": ["string", "null"]}, "None", None),
        ({"type": ["string", "null"]}, "8001", "8001"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "8001", 8001),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "8001.5", 8001.5),
        ({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]}, "null", "null"),
        ({"$ref": "#/$defs/Loop"}, "3", 3),
        ({"$ref": "https://example.com/schema"}, "3", 3),
        ({}, "3", 3),
        ({}, "None", "None"),
        ({}, '"quoted"', '"quoted"'),
        (True, "[1]", [1]),
    ],
)
def test_raw_arguments_have_the_types_of_their_schemas(schema, text, value):
    (call,) = parse_tool_calls(coder_call(text), CODER, [tool("f", {"a": schema}, **TREE)]).calls
    assert json.dumps(call.arguments["a"]) == json.dumps(value)


def test_raw_arguments_without_schemas_are_json_if_they_can_be():
    for tools in (None, [tool("g", {"a": {"type": "string"}})], [{"function": {"name": "f"}}], [tool("f", None)]):
        assert parse_tool_calls(coder_call("8001"), CODER, tools).calls == (ToolCall("f", {"a": 8001}),)


def test_raw_arguments_lose_only_the_padding_of_their_format():
    seed = ToolFormat("parameters", "<tool_call>", "</tool_call>", padding="")
    tools = [tool("f", {"a": {"type": "string"}})]
    assert parse_tool_calls(coder_call("\nx\n", ""), seed, tools).calls == (ToolCall("f", {"a": "\nx\n"}),)
    assert parse_tool_calls(coder_call("\nx\n"), CODER, tools).calls == (ToolCall("f", {"a": "\nx\n"}),)
    assert parse_tool_calls(coder_call("x", ""), CODER, tools).calls == (ToolCall("f", {"a": "x"}),)


@pytest.mark.parametrize(
    ("inside", "arguments"),
    [
        ('from="a", to="b"', {"from": "a", "to": "b"}),
        ("class=1, in=2, None=3, import=4", {"class": 1, "in": 2, "None": 3, "import": 4}),
        ('file-name="x", $ref=1, größe=2', {"file-name": "x", "$ref": 1, "größe": 2}),
        ("x=-1.5, y=true, z=null, w={'a': [1, -2]}", {"x": -1.5, "y": True, "z": None, "w": {"a": [1, -2]}}),
        ("x=True, y=False, z=None,", {"x": True, "y": False, "z": None}),
        (r'x="a\/b", y="\ud83d\ude00", z="\u00e9\b"', {"x": "a/b", "y": "\U0001f600", "z": "\u00e9\b"}),
        (r"x='it\'s \"so\"', y='\d\\'", {"x": "it's \"so\"", "y": "\\d\\"}),
        (r"z='\x41\U0001f600\101'", {"z": "A\U0001f600A"}),
        ('x="""a "b"\n\'c\'""", y=r"\\d+"', {"x": "a \"b\"\n'c'", "y": "\\d+"}),
        ('x="one " "two"', {"x": "one two"}),
        ("x=[], y={}, z=(), u=(1,), v=(2), w=(1, 2)", {"x": [], "y": {}, "z": [], "u": [1], "v": 2, "w": [1, 2]}),
        ("x=1_000, y=0x1F, z=1., u=.5, v=+3", {"x": 1000, "y": 31, "z": 1.0, "u": 0.5, "v": 3}),
        ("x=12345678901234567890", {"x": 12345678901234567890}),
        ("x={1: 2, None: 3}", {"x": {"1": 2, "null": 3}}),
        ('\n  x="])",\n  y="<|tool_call_end|>"\n', {"x": "])", "y": "<|tool_call_end|>"}),
        ('x="\\ud83d"', {"x": "\ufffd"}),
        ("", {}),
    ],
)  # fmt: skip
def test_calls_in_python_are_read_without_its_keywords(inside, arguments):
    text = f"<|tool_call_start|>[ns.f({inside}), g()]<|tool_call_end|>"
    result = parse_tool_calls(text, LIQUID)
    assert result.text == "" and [call.name for call in result.calls] == ["ns.f", "g"]
    assert json.dumps(result.calls[0].arguments) == json.dumps(arguments)


@pytest.mark.parametrize(
    "inside",
    [
        *("f(x=01)", "f(x=1e400)", "f(x=Infinity)", "f(x=-)", "f(x=1+2)", "f(x=)", "f(x)", "f(=1)", "f(x=1 y=2)"),
        *("f(x={1, 2})", "f(x={[]: 1})", "f(x={'a'})", 'f(x="a)', "f(x=b'a')", "f(x=f'a')", "f(x=dict())", "f(x=y)"),
        *("f(x=1))", "f(x=[1)", "f", "f(x=1j)", "f(x=1) g()", 'f(x="\\ud83d" or "")', "f(" + "x=(" * 10_000),
    ],
)
def test_calls_in_python_that_are_none_stay_text(inside):
    text = f"<|tool_call_start|>[{inside}]<|tool_call_end|>"
    assert parse_tool_calls(text, LIQUID) == (text, ())


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", '{"b": [NaN]}'])
def test_numbers_that_json_does_not_have_are_not_read(value):
    """A server could not send them on."""
    text = f'<tool_call>{{"name": "f", "arguments": {{"a": {value}}}}}</tool_call>'
    assert parse_tool_calls(text, HERMES) == (text, ())


def test_strings_of_calls_can_be_written_as_utf_8():
    text = '<tool_call>{"name": "f", "arguments": {"a\\udc00": ["\\ud83d!", "\\ud83d\\ude00"]}}</tool_call>'
    assert parse_tool_calls(text, HERMES).calls == (ToolCall("f", {"a\ufffd": ["\ufffd!", "\U0001f600"]}),)


@pytest.mark.parametrize("format", FORMATS, ids=lambda format: format.begin)
def test_marks_inside_of_strings_do_not_end_a_call(format):
    calls: tuple[ToolCall, ...] = (ToolCall("f", {"a": f'x "{format.end or format.begin}" y'}), ToolCall("g", {}))
    if format is GEMMA:
        calls = (ToolCall("f", {"a": f"x {format.end} y"}), ToolCall("g", {}))
    calls = calls[: 1 if format.bare else 2]
    tools = [tool("f", {"a": {"type": "string"}})]
    assert parse_tool_calls(answer(calls, format), format, tools) == ("", calls)


def test_tool_calls_open_string_ends_call_at_the_first_mark():
    text = '<tool_call>{"name": "f</tool_call> and <tool_call>{"name": "g"}</tool_call>'
    assert parse_tool_calls(text, HERMES).calls in ((), (ToolCall("g"),))
    assert parse_tool_calls(text, HERMES).text.startswith('<tool_call>{"name": "f</tool_call> and')


def test_tool_calls_in_lines_take_values_of_json_and_strings_with_line_breaks():
    text = '<function_calls>\nadd(a=true, b=null, c={"d": [1, -2]})\nsay(text="one\\ntwo")\n</function_calls>'
    calls = (ToolCall("add", {"a": True, "b": None, "c": {"d": [1, -2]}}), ToolCall("say", {"text": "one\ntwo"}))
    assert parse_tool_calls(text, OLMO) == ("", calls)


@pytest.mark.parametrize(
    ("inside", "arguments"),
    [
        ("{}", {}),
        ('{a:<|"|><|"|>}', {"a": ""}),
        ('{a:<|"|>{b:1},[\n"c\\d"<|"|>}', {"a": '{b:1},[\n"c\\d"'}),
        (
            "{a:-1.5e3,b:7,c:[true,false,null,None,[]],d:{e:{}}}",
            {"a": -1500.0, "b": 7, "c": [True, False, None, None, []], "d": {"e": {}}},
        ),
        ('{ a : [ 1 , 2 ] , <|"|>b c<|"|> : null }', {"a": [1, 2], "b c": None}),
        ('{file-name.x:<|"|>Zürich<|"|>,$ref:1}', {"file-name.x": "Zürich", "$ref": 1}),
    ],
)
def test_tool_calls_with_unquoted_keys(inside, arguments):
    text = f"<|tool_call>call:fs.read-all{inside}<tool_call|>"
    assert parse_tool_calls(text, GEMMA) == ("", (ToolCall("fs.read-all", arguments),))


def test_tool_calls_invalid_ones_stay_text():
    text = '<tool_call>{now}</tool_call> <tool_call>{"name": "now"}</tool_call>'
    assert parse_tool_calls(text, HERMES) == ("<tool_call>{now}</tool_call>", (ToolCall("now"),))


@pytest.mark.parametrize(
    ("actual", "code", "expected"),
    [
        ([], "missing_field", ["begin"]),
        ({"shape": "object"}, "missing_field", ["begin"]),
        ({"shape": "xml", "begin": "<"}, "unknown_kind", ["'xml'", "object"]),
        ({"shape": "object", "begin": "<", "colour": "red"}, "invalid_field", ["got colour"]),
        ({"shape": "object", "begin": "<", "bare": "yes"}, "invalid_field", ["got bare"]),
        ({"shape": "object", "begin": "<", "end": None}, "invalid_field", ["got end"]),
    ],
)
def test_tool_format_invalid_is_refused_by_name(actual, code, expected):
    with raises(FormatError, "x.tokenizer_config.json", *expected, code=code):
        ToolFormat.from_json(actual, "x.tokenizer_config.json")


def test_wrong_arguments_are_refused():
    with raises(InputError, "text", "bytes", code="wrong_type"):
        parse_tool_calls(b"", HERMES)  # type: ignore[arg-type]
    with raises(InputError, "format", "ToolFormat", "str", code="wrong_type"):
        parse_tool_calls("", "hermes")  # type: ignore[arg-type]


# ---------------------------------------------------------------- templates

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
TEMPLATE = (
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools>{% endif %}"
    "{% for message in messages %}{{ message.role }}:{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %};"
    "{% endfor %}"
)


def test_chat_template_receives_tools():
    said = render_chat(TEMPLATE, [{"role": "user", "content": "Rain?"}], tools=[WEATHER])
    assert said == f"<tools>{json.dumps(WEATHER)}</tools>user:Rain?;"
    for tools in (None, ()):
        assert render_chat(TEMPLATE, [{"role": "user", "content": "Rain?"}], tools=tools) == "user:Rain?;"


def test_tool_call_round_trips_through_template():
    call = {"type": "function", "function": {"name": "weather", "arguments": {"city": "Bern"}}}
    said = render_chat(TEMPLATE, [{"role": "assistant", "tool_calls": [call]}], tools=[WEATHER])
    assert parse_tool_calls(said.partition("assistant:")[2], HERMES).calls == (ToolCall("weather", {"city": "Bern"}),)


@pytest.mark.parametrize(
    ("template", "tools", "code", "expected"),
    [
        ("{{ messages[0].content }}", [WEATHER], "tools_unsupported", []),
        (
            "{{ messages[0]['tools'] }}",
            [WEATHER],
            "tools_unsupported",
            [],
        ),  # as Phi-4-mini's, which looks for them there
        (TEMPLATE, {"type": "function"}, "wrong_type", ["tools", "dict"]),
        (TEMPLATE, "weather", "wrong_type", ["tools", "str"]),
        (TEMPLATE, [print], "missing_field", ["tools[0]"]),
        (TEMPLATE, [WEATHER, {"type": "function"}], "missing_field", ["tools[1]"]),
        (TEMPLATE, [{"type": "function", "function": {"name": 3}}], "missing_field", ["tools[0]"]),
    ],
)
def test_tools_that_would_not_be_heard_of_are_refused(template, tools, code, expected):
    with raises(InputError, *expected, code=code):
        render_chat(template, [{"role": "user", "content": "Rain?"}], tools=tools)
