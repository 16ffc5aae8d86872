"""Ollama's API as its client sees it: a real process, a real worker, real HTTP."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import jsonschema
import numpy as np
import ollama
import pytest

from tests.serving.asking import CLOCK, HELLO, KEYS, PERSON, WEATHER, chat
from tests.support.harness.api_schemas import check_response
from tests.support.models.caller_files import CONTEXT

pytestmark = pytest.mark.gpu

MAX_TOKENS = 8
GREEDY = {"temperature": 0, "num_predict": MAX_TOKENS}
LONG = {"temperature": 0, "num_predict": 200}


def checked(response: httpx.Response) -> None:
    """Check a response against `/openapi.json`, if it describes the endpoint."""
    response.read()
    media, request = response.headers["content-type"], response.request
    check_response(request.method, request.url.path, response.status_code, media, response.text)


@pytest.fixture(scope="module")
def local(server):
    headers = {"Authorization": f"Bearer {KEYS['good']}"}
    with ollama.Client(server.url, headers=headers, timeout=240, event_hooks={"response": [checked]}) as connection:
        yield connection


def test_chat_equals_openai(client, local):
    response, expected = local.chat("caller", HELLO, options=GREEDY), chat(client)
    assert response.message.content == expected.choices[0].message.content
    assert (response.done, response.done_reason) == (True, "length")
    assert (response.prompt_eval_count, response.eval_count) == (expected.usage.prompt_tokens, MAX_TOKENS)


def test_stream_of_a_chat_accumulates_to_the_response(local):
    parts = list(local.chat("caller", HELLO, options=GREEDY, stream=True))
    whole = local.chat("caller", HELLO, options=GREEDY)
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True] and len(parts) > 2
    assert (parts[-1].done_reason, parts[-1].eval_count) == ("length", MAX_TOKENS)


def test_stream_of_a_completion_accumulates_to_the_response(local):
    asked: dict[str, Any] = {"model": "caller", "prompt": "Say hello.", "system": "Be brief.", "options": GREEDY}
    whole = local.generate(**asked)
    parts = list(local.generate(**asked, stream=True))
    assert "".join(part.response for part in parts) == whole.response and parts[-1].done
    assert whole.eval_count == MAX_TOKENS and whole.total_duration > 0


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string_is_cut(local, stream):
    drawn = {"temperature": 1, "seed": 9, "num_predict": 40}
    free = local.chat("caller", HELLO, options=drawn).message.content
    response = local.chat("caller", HELLO, options=drawn | {"stop": ["nowhere in there", free[6]]}, stream=stream)
    parts = list(response) if stream else [response]
    assert "".join(part.message.content for part in parts) == free[: free.index(free[6])]
    assert parts[-1].done_reason == "stop"


def test_request_without_a_prompt_loads_the_model(local):
    assert (local.generate("caller").done_reason, local.chat("caller").done_reason) == ("load", "load")


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_follow_the_schema_and_take_their_results(local, stream):
    def get_weather(city: str, unit: str) -> str:
        """The weather in a city."""
        return f"12 degrees {unit} in {city}"

    asked: dict[str, Any] = {"model": "caller", "tools": [WEATHER, CLOCK], "options": LONG}
    responses = local.chat(messages=HELLO, **asked, stream=stream)
    parts = list(responses) if stream else [responses]
    calls = [call for part in parts for call in part.message.tool_calls or ()]
    assert calls and parts[-1].done_reason == "stop"
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in (WEATHER, CLOCK)}
    for call in calls:
        jsonschema.validate(dict(call.function.arguments), schemas[call.function.name])
    results = [{"role": "tool", "tool_name": call.function.name, "content": "12 degrees"} for call in calls]
    turns = [*HELLO, {"role": "assistant", "tool_calls": calls}, *results]
    again = local.chat(messages=turns, **asked | {"options": GREEDY})
    assert again.prompt_eval_count > parts[-1].prompt_eval_count
    described = local.chat("caller", HELLO, tools=[get_weather], options=LONG)  # the package writes the schema
    assert {call.function.name for call in described.message.tool_calls} == {"get_weather"}


@pytest.mark.parametrize("stream", [False, True])
def test_format_is_followed(local, stream):
    responses = local.chat("caller", HELLO, format=PERSON, options=LONG, stream=stream)
    text = "".join(part.message.content for part in responses) if stream else responses.message.content
    jsonschema.validate(json.loads(text), PERSON)


def test_vectors_have_length_one_and_the_older_form_has_the_same_direction(local):
    texts = ["dogs run", "cats sleep"]
    response = local.embed("bert", texts)
    vectors = np.array(response.embeddings)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    old = np.array(local.embeddings("bert", texts[1]).embedding)
    np.testing.assert_allclose(old / np.linalg.norm(old), vectors[1], atol=1e-5)
    cut = np.array(local.embed("bert:latest", texts[0], dimensions=8).embeddings[0])
    np.testing.assert_allclose(cut, vectors[0][:8] / np.linalg.norm(vectors[0][:8]), atol=1e-5)


def test_models_are_listed_and_described(local):
    assert [model.model for model in local.list().models] == ["caller", "bert"]
    listed = {model.model: model for model in local.ps().models}
    assert listed["caller"].context_length == CONTEXT and listed["caller"].size_vram > 0
    assert listed["caller"].expires_at.year == 9999
    caller, bert = local.show("caller"), local.show("bert:latest")
    assert caller.capabilities == ["completion", "tools"] and "<|im_start|>" in caller.template
    assert caller.modelinfo["webpte.context_length"] == CONTEXT and caller.details.format == "pte"
    assert bert.capabilities == ["embedding"] and bert.modelinfo["webpte.embedding_length"] == 48


def test_pull_of_a_served_model_succeeds_and_others_are_refused(local):
    assert local.pull("caller").status == "success"
    assert [line.status for line in local.pull("bert:latest", stream=True)] == ["pulling manifest", "success"]
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError) as caught:
            list(local.pull("hf.co/org/name", stream=stream))
        assert caught.value.status_code == 403 and "--max-download-bytes" in caught.value.error


def test_clients_exceptions_match(server, local):
    wrong: list[tuple[int, Any]] = [
        (404, lambda: local.show("llama3")),
        (404, lambda: local.chat("llama3", HELLO)),
        (404, lambda: list(local.chat("llama3", HELLO, stream=True))),
        (400, lambda: local.chat("caller", [{"role": "user", "content": "x" * 3000}])),
        (400, lambda: list(local.generate("caller", "x" * 3000, stream=True))),
        (400, lambda: local.chat("caller", HELLO, options={"temperature": -1})),
        (400, lambda: local.chat("caller", [{"role": "user", "content": "?", "images": [b"png"]}])),
        (400, lambda: local.embed("caller", "a text")),
        (400, lambda: local.embed("bert", "dogs " * 2000, truncate=False)),
        (413, lambda: local.generate("caller", "x" * 200_000)),
        (422, lambda: local.chat("caller", HELLO, format={"$ref": "https://example.com"})),
        (403, lambda: local.create("mine", from_="caller")),
        (403, lambda: local.copy("caller", "mine")),
        (403, lambda: local.delete("caller")),
        (403, lambda: local.push("caller")),
    ]
    for status, ask in wrong:
        with pytest.raises(ollama.ResponseError) as caught:
            ask()
        assert caught.value.status_code == status and not caught.value.error.startswith("{")
    with ollama.Client(server.url) as stranger, pytest.raises(ollama.ResponseError) as caught:
        stranger.list()
    assert caught.value.status_code == 401


def test_async_client_streams_in_parallel(server, local):
    def options(number: int) -> dict[str, Any]:
        return {"temperature": 1, "seed": number, "num_predict": MAX_TOKENS}

    async def ask(connection: ollama.AsyncClient, number: int) -> str:
        parts = await connection.chat("caller", HELLO, options=options(number), stream=True)
        return "".join([part.message.content or "" async for part in parts])

    async def all_of_them() -> list[str]:
        headers = {"Authorization": f"Bearer {KEYS['good']}"}
        async with ollama.AsyncClient(server.url, headers=headers) as connection:
            return await asyncio.gather(*(ask(connection, number) for number in range(4)))

    alone = [local.chat("caller", HELLO, options=options(number)) for number in range(4)]
    assert asyncio.run(all_of_them()) == [response.message.content for response in alone]
