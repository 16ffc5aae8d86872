"""Requests that are refused: with which status, in which words, and by whose fault."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest

from tests.serving.asking import HELLO, KEYS, WEATHER, chat, in_schema
from tests.support.harness.serving import Running
from tests.support.models.caller_files import write_caller

pytestmark = pytest.mark.gpu


WRONG_CHATS: dict[str, tuple[dict[str, Any], int, str | None]] = {
    "unknown model": ({"model": "nobody"}, 404, "model"),
    "an encoder": ({"model": "bert"}, 400, "model"),
    "no messages": ({"messages": None}, 400, "messages"),
    "empty messages": ({"messages": []}, 400, "messages"),
    "no role": ({"messages": [{"content": "x"}]}, 400, "messages[0].role"),
    "a strange role": ({"messages": [{"role": "wizard", "content": "x"}]}, 400, "messages[0].role"),
    "no content": ({"messages": [{"role": "user"}]}, 400, "messages[0].content"),
    "a picture": (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
        400,
        "messages[0].content[0]",
    ),
    "temperature": ({"temperature": 3}, 400, "temperature"),
    "temperature as text": ({"temperature": "hot"}, 400, "temperature"),
    "top_p": ({"top_p": 1.5}, 400, "top_p"),
    "n": ({"n": 0}, 400, "n"),
    "too many choices": ({"n": 99}, 400, "n"),
    "max_tokens": ({"max_tokens": 0}, 400, "max_tokens"),
    "too many tokens": ({"max_tokens": 1201}, 400, "max_tokens"),
    "stop": ({"stop": [""]}, 400, "stop[0]"),
    "too many stops": ({"stop": ["x"] * 17}, 400, "stop"),
    "penalty": ({"presence_penalty": 5}, 400, "presence_penalty"),
    "bias": ({"logit_bias": {"x": 1}}, 400, "logit_bias.x"),
    "bias of no token": ({"logit_bias": {"99999": 1}}, 400, "logit_bias"),
    "top_logprobs alone": ({"top_logprobs": 2}, 400, "top_logprobs"),
    "too many top_logprobs": ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
    "stream_options alone": ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    "functions": ({"functions": [{"name": "f"}]}, 400, "functions"),
    "a format of no kind": ({"response_format": {"type": "xml"}}, 400, "response_format.type"),
    "no schema": ({"response_format": {"type": "json_schema"}}, 400, "response_format.json_schema"),
    "a schema that cannot be followed": (
        {"response_format": in_schema({"type": "array", "uniqueItems": True})}, 422, None,
    ),
    "a schema that points elsewhere": ({"response_format": in_schema({"$ref": "https://example.com/s"})}, 422, None),
    "a schema that allows nothing": ({"response_format": in_schema({"type": "string", "enum": [1]})}, 422, None),
    "a schema that is too large": (
        {"response_format": in_schema({"enum": ["x" * 70_000]})}, 422, "response_format.json_schema.schema",
    ),
    "a tool without a name": ({"tools": [{"type": "function", "function": {}}]}, 400, "tools[0].function.name"),
    "a tool of another type": ({"tools": [{"type": "retrieval"}]}, 400, "tools[0].type"),
    "a choice without tools": ({"tool_choice": "required"}, 400, "tool_choice"),
    "a function that is not there": (
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "other"}}}, 400, "tool_choice",
    ),
    "one tool twice": ({"tools": [WEATHER, WEATHER]}, 400, "tools"),
    "a prompt beyond the context": ({"messages": [{"role": "user", "content": "x" * 3000}]}, 400, None),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_CHATS)
def test_chat_wrong_field_returns_param_and_message(raw, name):
    changed, status, param = WRONG_CHATS[name]
    body = {"model": "caller", "messages": HELLO, "max_tokens": 8} | changed
    response = raw.post("/v1/chat/completions", json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"} and len(error["message"]) > 10
    assert error["param"] == param and error["type"] == "invalid_request_error"


WRONG_ELSEWHERE: dict[str, tuple[str, dict[str, Any], int]] = {
    "no prompt": ("/v1/completions", {"model": "caller"}, 400),
    "an empty prompt": ("/v1/completions", {"model": "caller", "prompt": ""}, 400),
    "a prompt of mixed kinds": ("/v1/completions", {"model": "caller", "prompt": ["a", 1]}, 400),
    "a token that is none": ("/v1/completions", {"model": "caller", "prompt": [99999]}, 400),
    "echo": ("/v1/completions", {"model": "caller", "prompt": "a", "echo": True}, 400),
    "best_of": ("/v1/completions", {"model": "caller", "prompt": "a", "best_of": 3}, 400),
    "too many prompts": ("/v1/completions", {"model": "caller", "prompt": ["a"] * 9}, 400),
    "no input": ("/v1/responses", {"model": "caller"}, 400),
    "an item of no kind": ("/v1/responses", {"model": "caller", "input": [{"type": "sound"}]}, 400),
    "a stored response": ("/v1/responses", {"model": "caller", "input": "a", "previous_response_id": "resp_1"}, 400),
    "a language model's vectors": ("/v1/embeddings", {"model": "caller", "input": "a"}, 400),
    "vectors of no text": ("/v1/embeddings", {"model": "bert", "input": []}, 400),
    "vectors of tokens": ("/v1/embeddings", {"model": "bert", "input": [1, 2]}, 400),
    "vectors of a long text": ("/v1/embeddings", {"model": "bert", "input": "dogs " * 100}, 400),
    "other dimensions": ("/v1/embeddings", {"model": "bert", "input": "a", "dimensions": 7}, 400),
    "tokens of nothing": ("/tokenize", {"model": "caller"}, 400),
    "text of no tokens": ("/detokenize", {"model": "caller", "tokens": ["a"]}, 400),
    "vectors of an unknown model": ("/v1/embeddings", {"model": "nobody", "input": "a"}, 404),
    "a path that is not there": ("/v1/nowhere", {}, 404),
}


@pytest.mark.parametrize("name", WRONG_ELSEWHERE)
def test_endpoints_wrong_request_returns_error(raw, name):
    path, body, status = WRONG_ELSEWHERE[name]
    response = raw.post(path, json=body)
    assert response.status_code == status, response.text
    assert response.json()["error"]["message"] and response.json()["error"]["type"] == "invalid_request_error"


def test_body_invalid_json_returns_400(raw):
    for body in (b"{", b"", b"\xff\xfe", b"[" * 50_000, b'{"temperature": NaN}', b'"text"', b"[]"):
        response = raw.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
        assert response.status_code == 400 and response.json()["error"]["message"], body[:20]


def test_page_cannot_send_a_body_of_another_type(raw):
    for more in ({"Origin": "https://page.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        response = raw.post("/v1/chat/completions", content=b"{}", headers={"Content-Type": "text/plain", **more})
        assert response.status_code == 415


def test_tokenize_without_content_type_is_accepted(raw):
    body = json.dumps({"model": "caller", "prompt": "abc"}).encode()
    for headers in ({"Content-Type": "application/x-www-form-urlencoded"}, {}):
        response = raw.post("/tokenize", content=body, headers=headers)
        assert response.status_code == 200 and response.json()["count"] == 3


def test_file_without_tokenizer_is_refused_with_a_remedy(tmp_path):
    program = write_caller(tmp_path)
    for file in tmp_path.glob("*tokenizer.json"):
        file.unlink()
    with pytest.raises(AssertionError, match=r"InputError: .*caller\.pte.*caller\.tokenizer\.json beside it"):
        Running(program)


def test_strict_server_refuses_unknown_fields(tmp_path):
    with Running(write_caller(tmp_path), "--strict") as server:
        response = httpx.post(f"{server.url}/tokenize", json={"model": "caller", "prompt": "abc", "promt": 1})
    assert response.status_code == 400 and response.json()["error"]["code"] == "unknown_parameter"


def test_body_too_large_returns_413(raw, client):
    def parts():
        for _ in range(200):
            yield b"x" * 1000

    json_type = {"Content-Type": "application/json"}
    for content in (b"x" * 200_000, parts()):  # with and without Content-Length
        response = raw.post("/v1/chat/completions", content=content, headers=json_type)
        assert response.status_code == 413 and response.json()["error"]["code"] == "body_too_large"
    with pytest.raises(openai.APIStatusError) as caught:
        chat(client, messages=[{"role": "user", "content": "x" * 200_000}])
    assert caught.value.status_code == 413
    assert chat(client).choices


def test_endpoint_wrong_method_returns_405(raw):
    response = raw.get("/v1/chat/completions")
    assert response.status_code == 405 and response.json()["error"]["code"] == "method_not_allowed"


@pytest.mark.parametrize("header", [None, "Bearer sk-wrong", "Bearer", "Basic abc", "Bearer " + KEYS["good"][:-1]])
def test_endpoint_without_key_returns_401(server, header):
    headers = {"Authorization": header} if header is not None else {}
    for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("GET", "/metrics")):
        response = httpx.request(method, server.url + path, headers=headers)
        assert response.status_code == 401 and response.json()["error"]["type"] == "authentication_error"
        assert response.headers["www-authenticate"] == "Bearer"


def test_openai_client_raises_matching_exceptions(server):
    with (
        openai.OpenAI(base_url=server.api, api_key="wrong", max_retries=0) as stranger,
        pytest.raises(openai.AuthenticationError),
    ):
        stranger.models.list()
    with openai.OpenAI(base_url=server.api, api_key=KEYS["other"], max_retries=0) as friend:
        with pytest.raises(openai.NotFoundError):
            chat(friend, model="nobody")
        with pytest.raises(openai.BadRequestError) as caught:
            chat(friend, messages=[{"role": "user", "content": "x" * 3000}])
        assert caught.value.code == "context_length_exceeded"
        with pytest.raises(openai.UnprocessableEntityError):
            chat(friend, response_format=in_schema({"type": "array", "uniqueItems": True}))
