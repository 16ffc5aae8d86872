"""Every response and event that clients get has the form that `/openapi.json` describes, without other fields."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.serving.asking import HELLO, KEYS, PERSON, WEATHER, in_schema
from tests.support.harness.api_schemas import check_response

pytestmark = pytest.mark.gpu

CHAT: dict[str, Any] = {"model": "caller", "messages": HELLO, "max_tokens": 6}
TEXT: dict[str, Any] = {"model": "caller", "prompt": "abc", "max_tokens": 6}
INPUT: dict[str, Any] = {"model": "caller", "input": "Say hello.", "max_output_tokens": 6}
TOOL = {"type": "function", **WEATHER["function"]}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


class RecordingClient:
    """OpenAI's client, and how many valid objects the server has sent it."""

    def __init__(self, url: str) -> None:
        self.valid = 0
        http = openai.DefaultHttpxClient(event_hooks={"response": [self._check]}, timeout=240)
        self.openai = openai.OpenAI(base_url=url, api_key=KEYS["good"], max_retries=0, http_client=http)

    def _check(self, response: Any) -> None:
        response.read()
        request, media = response.request, response.headers["content-type"]
        self.valid += check_response(request.method, request.url.path, response.status_code, media, response.text)

    def count(self, call: Any) -> int:
        """Return how many objects the response to a call has; a stream is read to its end."""
        before = self.valid
        response = call(self.openai)
        if isinstance(response, openai.Stream):
            list(response)
        return self.valid - before


@pytest.fixture(scope="module")
def recording(server):
    client = RecordingClient(server.api)
    with client.openai:
        yield client


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n": 2, "logprobs": True, "top_logprobs": 2},
        {"response_format": in_schema(PERSON), "max_tokens": 200},
        {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 200},
    ],
)
def test_chat_has_the_described_form_whole_and_as_events(recording, more):
    assert recording.count(lambda client: client.chat.completions.create(**CHAT | more)) == 1
    assert recording.count(lambda client: client.chat.completions.create(**CHAT | more | USAGE)) >= 4


@pytest.mark.parametrize("more", [{}, {"n": 2, "logprobs": 2}, {"prompt": ["a", "b"], "stop": "e"}])
def test_completion_has_the_described_form_whole_and_as_events(recording, more):
    assert recording.count(lambda client: client.completions.create(**TEXT | more)) == 1
    assert recording.count(lambda client: client.completions.create(**TEXT | more | USAGE)) >= 2


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"instructions": "Be brief.", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 100},
        {"tools": [TOOL], "tool_choice": "required", "max_output_tokens": 200},
        {"tools": [TOOL], "tool_choice": {"type": "function", "name": "get_weather"}, "max_output_tokens": 200},
    ],
)
def test_response_has_the_described_form_whole_and_as_events(recording, more):
    assert recording.count(lambda client: client.responses.create(**INPUT | more)) == 1
    assert recording.count(lambda client: client.responses.create(**INPUT | more, stream=True)) >= 6


def test_vectors_and_models_have_the_described_form(recording):
    for encoding in ("float", "base64"):
        vectors = {"model": "bert", "input": ["dogs", "cats"], "encoding_format": encoding}
        assert recording.count(lambda client, vectors=vectors: client.embeddings.create(**vectors)) == 1
    assert recording.count(lambda client: client.models.list()) == 1
    for name in ("caller", "bert"):
        assert recording.count(lambda client, name=name: client.models.retrieve(name)) == 1


def test_error_has_the_described_form(recording):
    before = recording.valid
    with pytest.raises(openai.NotFoundError):
        recording.openai.chat.completions.create(**CHAT | {"model": "other"})
    with pytest.raises(openai.BadRequestError):
        recording.openai.responses.create(**INPUT | {"max_output_tokens": 0})
    assert recording.valid == before + 2


@pytest.mark.parametrize(
    ("method", "path", "body", "least"),
    [
        ("POST", "/api/chat", {"model": "caller", "messages": HELLO, "options": {"num_predict": 6}}, 2),
        ("POST", "/api/chat", {"model": "caller", "messages": HELLO, "tools": [WEATHER], "stream": False}, 1),
        ("POST", "/api/chat", {"model": "caller"}, 1),
        ("POST", "/api/generate", {"model": "caller", "prompt": "a", "options": {"num_predict": 6}}, 2),
        ("POST", "/api/generate", {"model": "caller", "prompt": "a", "format": "json", "stream": False}, 1),
        ("POST", "/api/generate", {"model": "other", "prompt": "a"}, 1),
        ("POST", "/api/embed", {"model": "bert", "input": ["dogs", "cats"]}, 1),
        ("POST", "/api/embeddings", {"model": "bert", "prompt": "dogs"}, 1),
        ("POST", "/api/show", {"model": "caller"}, 1),
        ("POST", "/api/show", {"model": "bert"}, 1),
        ("GET", "/api/tags", None, 1),
        ("GET", "/api/ps", None, 1),
        ("GET", "/api/version", None, 1),
        ("POST", "/tokenize", {"model": "caller", "messages": HELLO}, 1),
        ("POST", "/detokenize", {"model": "caller", "tokens": [5, 6]}, 1),
    ],
)
def test_endpoint_response_has_the_described_form(raw, method, path, body, least):
    response = raw.request(method, path, json=body)
    media = response.headers["content-type"]
    assert check_response(method, path, response.status_code, media, response.text) >= least
