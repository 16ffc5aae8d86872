"""Answers that follow a schema, and calls of tools."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import jsonschema
import pytest

from tests.serving.asking import CLOCK, HELLO, KEYS, PERSON, WEATHER, chat, in_schema
from tests.serving.schemas import ask_all

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("drawn", [{}, {"temperature": 1, "seed": 11}])
def test_chat_json_schema_is_followed(client, drawn):
    choice = chat(client, max_tokens=200, response_format=in_schema(PERSON), **drawn).choices[0]
    assert choice.finish_reason == "stop"
    jsonschema.validate(json.loads(choice.message.content), PERSON)


def test_chat_stream_json_schema_is_followed(client):
    chunks = chat(client, max_tokens=200, response_format=in_schema(PERSON), temperature=1, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    jsonschema.validate(json.loads(text), PERSON)


def test_chat_json_object_returns_object(client, raw):
    """A model that wants to say nothing but `}` opens an object first."""
    (brace,) = raw.post("/tokenize", json={"model": "caller", "prompt": "}"}).json()["tokens"]
    bias = {"logit_bias": {str(brace): 100}}
    assert chat(client, **bias).choices[0].message.content == "}" * 8
    choice = chat(client, response_format={"type": "json_object"}, **bias).choices[0]
    assert choice.finish_reason == "stop" and choice.message.content == "{}"


def test_plain_text_is_a_format_too(client):
    assert (
        chat(client, response_format={"type": "text"}).choices[0].message.content
        == chat(client).choices[0].message.content
    )


def check_weather(call: Any) -> None:
    assert call.type == "function" and call.id.startswith("call_") and call.function.name == "get_weather"
    jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])


@pytest.mark.parametrize(
    "choice", ["auto", "required", {"type": "function", "function": {"name": "get_weather"}}], ids=str
)
def test_chat_tool_call_follows_schema(client, choice):
    response = chat(client, tools=[WEATHER], tool_choice=choice, max_tokens=200).choices[0]
    assert response.finish_reason == "tool_calls" and response.message.content is None
    check_weather(response.message.tool_calls[0])


@pytest.mark.parametrize("seed", range(3))
def test_drawn_calls_follow_the_schema_too(client, seed):
    response = chat(client, tools=[WEATHER, CLOCK], tool_choice="required", max_tokens=400, temperature=1, seed=seed)
    for call in response.choices[0].message.tool_calls:
        schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in (WEATHER, CLOCK)}
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])


def test_chat_tool_choice_named_function_called_once(client):
    named = {"type": "function", "function": {"name": "get_time"}}
    (call,) = chat(client, tools=[WEATHER, CLOCK], tool_choice=named, max_tokens=100).choices[0].message.tool_calls
    assert call.function.name == "get_time" and json.loads(call.function.arguments) == {}


def test_chat_parallel_tool_calls_false_returns_single_call(client):
    response = chat(
        client, tools=[WEATHER], tool_choice="required", parallel_tool_calls=False, max_tokens=200, temperature=1
    )
    assert len(response.choices[0].message.tool_calls) == 1


def test_chat_stream_tool_call_follows_schema(client):
    calls: list[Any] = []
    finish = None
    for chunk in chat(client, tools=[WEATHER], max_tokens=200, stream=True):
        calls += chunk.choices[0].delta.tool_calls or []
        finish = chunk.choices[0].finish_reason or finish
    assert finish == "tool_calls" and calls[0].index == 0
    check_weather(calls[0])


def test_tools_that_may_not_be_called(client):
    response = chat(client, tools=[WEATHER], tool_choice="none").choices[0]
    assert response.message.tool_calls is None and response.message.content == chat(client).choices[0].message.content


def test_chat_tool_result_is_part_of_prompt(client):
    call = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Bern"}'}}
    messages = [
        *HELLO,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "12 degrees"},
    ]
    longer = chat(client, messages=messages).usage.prompt_tokens
    assert longer > chat(client).usage.prompt_tokens + 20


def test_random_schemas_and_tools_are_followed(server):
    """`python -m tests.serving schemas` asks for 100 and 50."""
    wrong, calls = asyncio.run(ask_all(server.url, "caller", schemas=12, tools=6, key=KEYS["good"]))
    assert not wrong, "\n".join(wrong)
    assert calls >= 6
