"""Request bodies against their declarations: what is accepted, and how each error names its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from webpte.serve import bodies
from webpte.serve.bodies import RequestBody, parse_body
from webpte.serve.errors import ApiError
from webpte.serve.openai.requests import ChatRequest, CompletionRequest, EmbeddingsRequest, ResponsesRequest
from webpte.serve.responses import JsonResponse

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def parse(declaration: type[RequestBody], body: Any) -> Any:
    return parse_body(json.dumps(body).encode(), declaration)


def error_of(declaration: type[RequestBody], body: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        parse(declaration, body)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize(
    ("change", "param", "numbers"),
    [
        ({"temperature": 2.5}, "temperature", ["2", "2.5"]),
        ({"temperature": True}, "temperature", ["True"]),
        ({"top_k": 1.0}, "top_k", ["1.0"]),
        ({"seed": 2**64}, "seed", [str(2**64)]),
        ({"n": 0}, "n", ["1", "0"]),
        ({"messages": []}, "messages", ["1", "0"]),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content", ["7"]),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "messages[0].content[0].text", []),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", []),
        ({"messages": [{"content": "x"}]}, "messages[0].role", []),
        ({"stop": ["x"] * 17}, "stop", ["16", "17"]),
        ({"logit_bias": {"3": 101}}, "logit_bias.3", ["100", "101"]),
        ({"response_format": {"type": "xml"}}, "response_format.type", ["xml"]),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name", ["a b"]),
    ],
)
def test_error_names_the_field(change, param, numbers):
    error = error_of(ChatRequest, CHAT | change)
    assert error.param == param and str(error).startswith(param)
    assert all(number in str(error) for number in numbers), str(error)


@pytest.mark.parametrize(
    "field", ["temperature", "top_p", "min_p", "presence_penalty", "repetition_penalty", "seed", "top_k", "max_tokens"]
)
@pytest.mark.parametrize("value", [10**400, -(10**400), 1e308])
def test_number_out_of_range_is_refused_before_it_is_converted(field, value):
    assert error_of(ChatRequest, CHAT | {field: value}).param == field


def test_long_name_of_a_field_is_cut():
    error = error_of(ChatRequest, CHAT | {"x" * 1_000_000: 1})
    assert len(str(error)) < 200 and len(error.param or "") < 100


def test_error_lists_every_invalid_field():
    error = error_of(
        ChatRequest, CHAT | {"n": -1, "name": 2, "temperature": 9, "top_p": 9, "min_p": 9, "max_tokens": 0}
    )
    assert all(f"{name}:" in str(error) for name in ("temperature", "top_p", "n", "max_tokens"))
    assert "and 2 more" in str(error)


def test_unknown_field_has_a_code_and_a_suggestion():
    error = error_of(ChatRequest, CHAT | {"temprature": 1})
    assert (error.param, error.code) == ("temprature", "unknown_parameter") and "temperature" in str(error)


def test_unknown_fields_are_ignored_with_a_callback():
    unknown: list[str] = []
    body = CHAT | {"temprature": 1, "guided_regex": "a", "temperature": 0.5}
    body["messages"] = [{"role": "user", "content": "hi", "weight": 1}]
    data = json.dumps(body | {"response_format": {"type": "text", "indent": 2}}).encode()
    parsed = parse_body(data, ChatRequest, lambda name, known: unknown.append(name))
    assert parsed.temperature == 0.5 and parsed.messages[0].content == "hi"
    assert sorted(unknown) == ["guided_regex", "indent", "temprature", "weight"]


def test_unsupported_field_is_refused_with_a_callback_too():
    with pytest.raises(ApiError) as caught:
        parse_body(json.dumps(CHAT | {"functions": [{}], "x": 1}).encode(), ChatRequest, lambda name, known: None)
    assert caught.value.code == "unsupported_parameter"


def test_unsupported_field_has_a_code_and_a_remedy():
    error = error_of(ChatRequest, CHAT | {"functions": [{"name": "f"}]})
    assert (error.param, error.code) == ("functions", "unsupported_parameter") and "tools" in str(error)
    assert parse(ChatRequest, CHAT | {"functions": None, "audio": False}).model == "m"


def test_null_is_absent_everywhere_but_in_schemas():
    body = CHAT | {"n": None, "temperature": None, "stream_options": None, "user": "me"}
    body["messages"] = [{"role": "assistant", "content": None, "tool_calls": None, "name": None}]
    parsed = parse(ChatRequest, body)
    assert parsed.n == 1 and parsed.messages[0].tool_calls == []
    schema = {"properties": {"a": {"const": None}}, "default": None}
    format = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    assert parse(ChatRequest, CHAT | {"response_format": format}).response_format.json_schema.schema_ == schema


def test_half_a_surrogate_pair_is_replaced():
    body = json.dumps(CHAT).replace("hi", "a\\ud83db\\ud83d\\ude00 \\\\ud83d").encode()
    assert parse_body(body, ChatRequest).messages[0].content == "a?b\U0001f600 \\ud83d"


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b'"x"', b"[" * 50_000, b'{"temperature": NaN}'])
def test_invalid_json_is_refused(body):
    with pytest.raises(ApiError) as caught:
        parse_body(body, ChatRequest)
    assert caught.value.status == 400


@pytest.mark.parametrize("prompt", ["a", ["a", "b"], [1, 2], [[1], [2, 3]]])
def test_prompt_has_four_forms(prompt):
    assert parse(CompletionRequest, {"model": "m", "prompt": prompt}).prompt == prompt


@pytest.mark.parametrize("prompt", [[], ["a", 1], [[1], "a"], [True], {"a": 1}, 3, [-1], [1.5]])
def test_requests_invalid_prompt_is_refused(prompt):
    assert (error_of(CompletionRequest, {"model": "m", "prompt": prompt}).param or "").startswith("prompt")


def test_items_of_a_response_have_their_types():
    items = [
        {"role": "user", "content": "a"},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": '{"a": 1}', "id": "x"},
        {"type": "function_call_output", "call_id": "1", "output": "2"},
    ]
    parsed = parse(ResponsesRequest, {"model": "m", "input": items}).input
    assert [item.type for item in parsed] == ["message", "function_call", "function_call_output"]
    assert parsed[1].arguments == {"a": 1}
    assert error_of(ResponsesRequest, {"model": "m", "input": [{"type": "sound"}]}).param == "input[0].type"
    wrong = [{**items[1], "arguments": "[1]"}]
    assert error_of(ResponsesRequest, {"model": "m", "input": wrong}).param == "input[0].arguments"


def test_requests_embedding_tokens_are_refused():
    assert error_of(EmbeddingsRequest, {"model": "m", "input": [1, 2]}).param == "input[0]"


def test_body_with_many_errors_is_refused_without_comparing_all(monkeypatch):
    """Each error was compared with all others: those of a body of 1 MB took half an hour."""
    located: list[Any] = []

    def location(*error: Any) -> str:
        located.append(error)
        return f"f{len(located)}"

    monkeypatch.setattr(bodies, "_location", location)
    error = error_of(ChatRequest, CHAT | {"logit_bias": {str(number): "x" for number in range(1000)}})
    assert len(located) == bodies.MAX_ERRORS_COMPARED and "and 996 more" in str(error)


def test_body_with_too_many_fields_is_refused():
    assert "1024" in str(error_of(ChatRequest, CHAT | {f"f{number}": 1 for number in range(5000)}))


def test_json_of_a_response_is_the_same_in_parts():
    content = {
        "tokens": list(range(1000)),
        "none": [],
        "é": ["\ud800", {"a": [1.5, None]}],
        "count": 3,
        "x": {"y": "z"},
    }
    assert JsonResponse(content).body == json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
