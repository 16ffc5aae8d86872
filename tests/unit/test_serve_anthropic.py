"""Anthropic's API over a backend without a worker: the order of events, the messages of a template, every error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.support.harness.stand_in import Asked, StandIn, StandInCompiler
from tests.support.models.tokenizers import byte_level
from webpte.errors import DeviceLost
from webpte.serve.anthropic.response_types import ERROR_TYPES
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.errors import STATUSES, DeadlineExceeded, QueueFull

PATH = "/v1/messages"
COUNT = "/v1/messages/count_tokens"
USER = {"role": "user", "content": "hi"}
BODY: dict[str, Any] = {"model": "stand-in", "messages": [USER], "max_tokens": 500}
HERMES = {"shape": "object", "begin": "<tool_call>", "end": "</tool_call>"}
ADD = {"name": "add", "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
CALL = '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


@pytest.fixture
def ask(tmp_path, monkeypatch):
    """Returns the response to a request, and the backend. Schemas are compiled in this process."""
    monkeypatch.setattr("webpte.serve.served_models.SchemaCompiler", StandInCompiler)

    def run(
        body: Any, path: str = PATH, config: Config | None = None, headers: Any = None, fails: Any = None,
        fails_at_end: Any = None, **more: Any,
    ) -> tuple[Asked, StandIn]:  # fmt: skip
        async def whole():
            backend = StandIn(tmp_path, byte_level(), **more)
            backend.fails, backend.fails_at_end = fails, fails_at_end
            application = app(backend, config or Config(schema_timeout=60))
            async with application.router.lifespan_context(application):
                return await Asked(application, path, body, headers).answer(), backend

        return asyncio.run(whole())

    return run


def prompt(ask, **fields: Any) -> str:
    """Return the prompt that a backend gets."""
    response, backend = ask(BODY | fields, tool_format=HERMES)
    assert response.status == 200, response.body
    return byte_level().decode(backend.streams[0].prompt, specials=True)


def test_stream_events_have_anthropics_order_and_names(ask):
    response, _ = ask(BODY | {"stream": True}, says="hi!")
    kinds = [event["type"] for event in response.events]
    start, deltas = ["message_start", "content_block_start", "ping"], ["content_block_delta"] * 3
    assert kinds == [*start, *deltas, "content_block_stop", "message_delta", "message_stop"]
    names = [line for line in response.body.decode().split("\n") if line.startswith("event: ")]
    assert names == [f"event: {kind}" for kind in kinds] and b"[DONE]" not in response.body
    message = response.events[0]["message"]
    assert message["content"] == [] and message["stop_reason"] is None and message["usage"]["output_tokens"] == 0
    end = response.events[-2]
    assert end["delta"] == {"stop_reason": "end_turn", "stop_sequence": None} and end["usage"]["output_tokens"] == 3


def test_stream_of_text_and_two_calls_has_three_blocks(ask):
    response, _ = ask(BODY | {"stream": True, "tools": [ADD]}, says=f"Well: {CALL}{CALL}", tool_format=HERMES)
    started = [event for event in response.events if event["type"] == "content_block_start"]
    assert [(event["index"], event["content_block"]["type"]) for event in started] == [
        (0, "text"), (1, "tool_use"), (2, "tool_use"),
    ]  # fmt: skip
    assert [event["content_block"].get("input") for event in started] == [None, {}, {}]
    assert len({event["content_block"]["id"] for event in started[1:]}) == 2
    pieces = [event["delta"] for event in response.events if event["type"] == "content_block_delta"]
    assert [json.loads(piece["partial_json"]) for piece in pieces if piece["type"] == "input_json_delta"] == [
        {"a": 1}, {"a": 1},
    ]  # fmt: skip
    assert [event["index"] for event in response.events if event["type"] == "content_block_stop"] == [0, 1, 2]
    assert response.events[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("says", "fields", "content", "reason"),
    [
        ("hello", {}, [{"type": "text", "text": "hello"}], ("end_turn", None)),
        ("hello", {"max_tokens": 2}, [{"type": "text", "text": "he"}], ("max_tokens", None)),
        ("", {}, [], ("end_turn", None)),
        ("a STOP b", {"tools": [ADD], "stop_sequences": ["x", "STOP"]}, [{"type": "text", "text": "a "}],
         ("stop_sequence", "STOP")),
    ],
)  # fmt: skip
def test_message_has_content_and_stop_reason(ask, says, fields, content, reason):
    response, _ = ask(BODY | fields, says=says, tool_format=HERMES)
    message = response.json
    assert message["content"] == content and (message["stop_reason"], message["stop_sequence"]) == reason
    assert message["type"] == "message" and message["role"] == "assistant" and message["id"].startswith("msg_")


def test_max_tokens_beyond_the_servers_limit_is_lowered(ask):
    response, backend = ask(BODY | {"max_tokens": 64_000}, config=Config(max_output_tokens=300))
    assert response.status == 200 and backend.streams[0].params.max_new_tokens == 300


def test_turns_become_messages_of_the_template(ask):
    turns = [
        {"role": "user", "content": [{"type": "text", "text": "one, "}, {"type": "text", "text": "two"}]},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "so", "signature": "x"},
                {"type": "text", "text": "I add.", "citations": None},
                {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}},
                {"type": "tool_use", "id": "t2", "name": "add", "input": {"a": 2}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "1", "cache_control": {"type": "ephemeral"}},
                {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "2"}]},
                {"type": "text", "text": "Next?"},
            ],
        },
    ]
    system = [
        {"type": "text", "text": "Be ", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "kind."},
    ]
    expected = "system: Be kind.\nuser: one, two\nassistant: I add.\ntool: 1\ntool: 2\nuser: Next?\n"
    assert prompt(ask, messages=turns, system=system) == expected
    assert prompt(ask, messages=turns, system="Be kind.") == expected
    assert prompt(ask, messages=[{"role": "system", "content": "Be kind."}, *turns]) == expected


def test_tools_are_shown_to_the_template_unless_the_choice_is_none(ask):
    assert '"name": "add"' in prompt(ask, tools=[ADD | {"description": "Adds.", "strict": True}])
    assert '"name": "add"' not in prompt(ask, tools=[ADD], tool_choice={"type": "none"})


def test_count_of_tokens_equals_the_length_of_the_prompt(ask):
    body = {**BODY, "system": "Be kind.", "tools": [ADD], "max_tokens": 1}
    counted, _ = ask({key: value for key, value in body.items() if key != "max_tokens"}, COUNT, tool_format=HERMES)
    response, backend = ask(body, tool_format=HERMES)
    assert counted.json == {"input_tokens": len(backend.streams[0].prompt)}
    assert response.json["usage"]["input_tokens"] == counted.json["input_tokens"]


WRONG: list[tuple[dict[str, Any], int, str]] = [
    ({"messages": []}, 400, "messages"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, 400, "messages[0].role"),
    ({"messages": [USER, {"role": "assistant", "content": "The"}]}, 400, "messages[1].role"),
    ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, 400, "messages[0].content[0].source"),
    ({"messages": [{"role": "user", "content": [{"type": "audio"}]}]}, 400, "messages[0].content[0].type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]}]},
        400,
        "messages[0].content[0]: stand-in reads no images",
    ),
    (
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": [IMAGE]}],
                }
            ]
        },
        400,
        "messages[0].content[0].content[0]: stand-in reads no images",
    ),
    ({"max_tokens": None}, 400, "max_tokens"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"model": "claude"}, 404, "model"),
    ({"temperature": 3}, 400, "temperature"),
    ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, 400, "tools[0].type"),
    ({"tools": [ADD, ADD]}, 400, "tools"),
    ({"tools": [ADD], "tool_choice": {"type": "tool", "name": "other"}}, 400, "tool_choice"),
    ({"tools": [ADD], "tool_choice": {"type": "tool"}}, 400, "tool_choice.name"),
    ({"tool_choice": {"type": "any"}}, 400, "tool_choice"),
    ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, 400, "think"),
    ({"mcp_servers": [{}]}, 400, "mcp_servers"),
    ({"messages": [{"role": "user", "content": "x" * 3000}]}, 400, "prompt"),
    (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "array", "uniqueItems": True}}}},
        422,
        "uniqueItems",
    ),
]


@pytest.mark.parametrize(("fields", "status", "text"), WRONG)
def test_wrong_request_gets_anthropics_error(ask, fields, status, text):
    response, _ = ask(BODY | fields, tool_format=HERMES)
    assert response.status == status, response.body
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    assert response.json["type"] == "error" and response.json["error"]["type"] == kind
    assert text in response.json["error"]["message"] and set(response.json["error"]) == {"type", "message"}


@pytest.mark.parametrize(
    ("fails", "status", "kind"),
    [
        (QueueFull("64 wait"), 429, "rate_limit_error"),
        (DeviceLost("gone"), 503, "overloaded_error"),
        (DeadlineExceeded("60 s"), 504, "timeout_error"),
        (RuntimeError("a bug"), 500, "api_error"),
    ],
)
def test_failure_of_the_backend_has_anthropics_type(ask, fails, status, kind):
    response, _ = ask(BODY, fails=fails)
    assert (response.status, response.json["error"]["type"]) == (status, kind)
    if not isinstance(fails, RuntimeError):
        broken, _ = ask(BODY | {"stream": True}, fails_at_end=fails)
        assert broken.status == 200 and broken.body.decode().split("\n\n")[-2].startswith("event: error\n")
        assert broken.events[-1]["type"] == "error" and broken.events[-1]["error"]["type"] == kind


def test_error_types_cover_every_status():
    assert ERROR_TYPES.keys() == STATUSES.keys()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"x-api-key": "secret"}, 200),
        ({"authorization": "Bearer secret"}, 200),
        ({"x-api-key": "other"}, 401),
        ({"x-api-key": ""}, 401),
        ({"authorization": "Bearer other", "x-api-key": "secret"}, 401),
        ({}, 401),
    ],
)
def test_key_may_be_in_either_header(ask, headers, status):
    response, _ = ask(BODY, config=Config(api_keys=("secret",)), headers=headers)
    assert response.status == status
    if status == 401:
        assert response.json["error"]["type"] == "authentication_error"
