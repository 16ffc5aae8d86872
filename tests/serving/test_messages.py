"""Anthropic's API as its client sees it: a real process, a real worker, real HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import anthropic
import jsonschema
import pytest

from tests.serving.asking import CLOCK, HELLO, KEYS, PERSON, WEATHER, chat
from tests.support.harness.api_schemas import check_response

pytestmark = pytest.mark.gpu

MAX_TOKENS = 8


def custom(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    described = {"description": function["description"]} if "description" in function else {}
    return {"name": function["name"], "input_schema": function["parameters"], **described}


def checked(response: Any) -> None:
    """Check a response against `/openapi.json`."""
    response.read()
    request, media = response.request, response.headers["content-type"]
    assert check_response(request.method, request.url.path, response.status_code, media, response.text)


@pytest.fixture(scope="module")
def messages(server):
    http = anthropic.DefaultHttpxClient(event_hooks={"response": [checked]}, timeout=240)
    with anthropic.Anthropic(base_url=server.url, api_key=KEYS["good"], max_retries=0, http_client=http) as connection:
        yield connection.messages


def asked(**more: Any) -> dict[str, Any]:
    """Return the arguments of a greedy request. The package has none for sampling."""
    greedy = {"extra_body": {"temperature": 0}}
    return {"model": "caller", "messages": HELLO, "max_tokens": MAX_TOKENS, **greedy} | more


def drawn(seed: int, **more: Any) -> dict[str, Any]:
    return asked(extra_body={"temperature": 1, "seed": seed}, **more)


def test_message_equals_chat(client, messages):
    response, expected = messages.create(**asked()), chat(client)
    (block,) = response.content
    assert (response.type, response.role, block.type) == ("message", "assistant", "text")
    assert block.text == expected.choices[0].message.content
    assert (response.stop_reason, response.stop_sequence) == ("max_tokens", None)
    usage = response.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == expected.usage.prompt_tokens
    assert usage.output_tokens == MAX_TOKENS and usage.cache_creation_input_tokens == 0


def test_stream_accumulates_to_the_message(messages):
    whole = messages.create(**asked())
    with messages.stream(**asked()) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text and len(final.content) == 1
    assert (final.stop_reason, final.usage.output_tokens) == ("max_tokens", MAX_TOKENS)


@pytest.mark.parametrize("tools", [[], [custom(CLOCK)]])
@pytest.mark.parametrize("stream", [False, True])
def test_stop_sequence_is_named_and_cut(messages, stream, tools):
    choice = {"tools": tools, "tool_choice": {"type": "none"}} if tools else {}
    body = drawn(9, max_tokens=40) | choice
    free = messages.create(**body).content[0].text
    stop = free[6]
    cut = body | {"stop_sequences": ["nowhere in there", stop]}
    if stream:
        with messages.stream(**cut) as events:
            response = events.get_final_message()
    else:
        response = messages.create(**cut)
    assert (response.stop_reason, response.stop_sequence) == ("stop_sequence", stop)
    assert "".join(block.text for block in response.content) == free[: free.index(stop)]


def test_system_is_a_string_blocks_or_a_message(messages):
    blocks = [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]
    counts = [
        messages.count_tokens(model="caller", messages=HELLO, system="Be brief."),
        messages.count_tokens(model="caller", messages=HELLO, system=blocks),
        messages.count_tokens(model="caller", messages=[{"role": "system", "content": "Be brief."}, *HELLO]),
    ]
    without = messages.count_tokens(model="caller", messages=HELLO).input_tokens
    assert counts[0] == counts[1] == counts[2] and counts[0].input_tokens > without
    used = messages.create(**asked(system=blocks)).usage
    assert used.input_tokens + used.cache_read_input_tokens == counts[0].input_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_tool_use_follows_the_schema_and_takes_its_result(messages, stream):
    body = asked(tools=[custom(WEATHER), custom(CLOCK)], max_tokens=200)
    if stream:
        with messages.stream(**body) as events:
            response = events.get_final_message()
    else:
        response = messages.create(**body)
    calls = [block for block in response.content if block.type == "tool_use"]
    assert response.stop_reason == "tool_use" and calls
    schemas = {tool["name"]: tool["input_schema"] for tool in body["tools"]}
    for call in calls:
        jsonschema.validate(call.input, schemas[call.name])
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "12 degrees"} for call in calls]
    turns = [*HELLO, {"role": "assistant", "content": response.content}, {"role": "user", "content": results}]
    again = messages.create(**body | {"messages": turns, "max_tokens": 4})
    counted = messages.count_tokens(model="caller", messages=turns, tools=body["tools"]).input_tokens
    assert again.usage.input_tokens + again.usage.cache_read_input_tokens == counted
    assert again.usage.cache_read_input_tokens > 0


@pytest.mark.parametrize(
    ("choice", "names"),
    [
        ({"type": "any", "disable_parallel_tool_use": True}, {"get_weather", "get_time"}),
        ({"type": "tool", "name": "get_time"}, {"get_time"}),
        ({"type": "none"}, set()),
    ],
)
def test_tool_choice_is_followed(messages, choice, names):
    response = messages.create(**asked(tools=[custom(WEATHER), custom(CLOCK)], tool_choice=choice, max_tokens=200))
    calls = [block.name for block in response.content if block.type == "tool_use"]
    assert len(calls) == bool(names) and set(calls) <= names


def test_output_format_is_followed(messages):
    config = {"format": {"type": "json_schema", "schema": PERSON}}
    response = messages.create(**asked(output_config=config, max_tokens=200))
    jsonschema.validate(json.loads(response.content[0].text), PERSON)
    assert response.stop_reason == "end_turn"


def test_package_lists_the_models(server):
    with anthropic.Anthropic(base_url=server.url, api_key=KEYS["good"], max_retries=0, timeout=240) as connection:
        assert [model.id for model in connection.models.list()] == ["caller", "bert"]
        assert connection.models.retrieve("caller").id == "caller"


def test_clients_exceptions_match(server, messages):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    wrong: list[tuple[type[anthropic.APIStatusError], dict[str, Any], str]] = [
        (anthropic.NotFoundError, {"model": "claude"}, "not_found_error"),
        (anthropic.BadRequestError, {"messages": [{"role": "user", "content": [image]}]}, "invalid_request_error"),
        (anthropic.BadRequestError, {"messages": [{"role": "user", "content": "x" * 3000}]}, "invalid_request_error"),
        (anthropic.RequestTooLargeError, {"system": "x" * 200_000}, "request_too_large"),
        (
            anthropic.UnprocessableEntityError,
            {"output_config": {"format": {"type": "json_schema", "schema": {"$ref": "https://example.com"}}}},
            "invalid_request_error",
        ),
    ]
    for expected, fields, kind in wrong:
        for stream in (False, True):
            with pytest.raises(expected) as caught:
                messages.create(**asked(stream=stream) | fields)
            body: Any = caught.value.body
            assert body["type"] == "error" and body["error"]["type"] == kind
    with (
        anthropic.Anthropic(base_url=server.url, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(anthropic.AuthenticationError),
    ):
        stranger.messages.create(**asked())
    with anthropic.Anthropic(base_url=server.url, auth_token=KEYS["other"], max_retries=0) as friend:
        assert friend.messages.create(**asked()).content  # which sends the key as Bearer


def test_async_client_streams_in_parallel(server, messages):
    async def ask(connection, number: int) -> str:
        async with connection.messages.stream(**drawn(number)) as stream:
            return "".join([text async for text in stream.text_stream])

    async def all_of_them() -> list[str]:
        async with anthropic.AsyncAnthropic(base_url=server.url, api_key=KEYS["good"], max_retries=0) as connection:
            return await asyncio.gather(*(ask(connection, number) for number in range(4)))

    alone = [messages.create(**drawn(number)) for number in range(4)]
    assert asyncio.run(all_of_them()) == [response.content[0].text for response in alone]
