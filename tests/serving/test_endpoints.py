"""Completions, responses, vectors, models and tokens, with and without asyncio."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any

import jsonschema
import numpy as np
import openai
import pytest

from tests.serving.asking import HELLO, KEYS, PERSON, WEATHER, chat, in_schema
from tests.support.models.caller_files import CONTEXT

pytestmark = pytest.mark.gpu


def complete(client, **more: Any) -> Any:
    return client.completions.create(**({"model": "caller", "prompt": "abc", "max_tokens": 6, "temperature": 0} | more))


def test_completion_returns_text_and_usage(client):
    response = complete(client)
    assert response.object == "text_completion" and response.id.startswith("cmpl-")
    assert (
        response.choices[0].text and response.choices[0].finish_reason == "length" and response.usage.prompt_tokens == 3
    )


def test_completion_stream_equals_response(client):
    chunks = list(complete(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(chunk.choices[0].text for chunk in chunks if chunk.choices) == complete(client).choices[0].text
    assert chunks[-1].usage.completion_tokens == 6


def test_prompts_of_every_kind(client, raw):
    tokens = raw.post("/tokenize", json={"model": "caller", "prompt": "abc"}).json()["tokens"]
    texts = [choice.text for choice in complete(client, prompt=["abc", "abcd"]).choices]
    assert len(texts) == 2 and texts[0] == complete(client).choices[0].text
    assert complete(client, prompt=tokens).choices[0].text == texts[0]
    assert [choice.text for choice in complete(client, prompt=[tokens, tokens]).choices] == [texts[0]] * 2


def test_logprobs_of_a_completion(client):
    response = complete(client, logprobs=2).choices[0]
    assert len(response.logprobs.tokens) == 6 and all(len(tops) == 2 for tops in response.logprobs.top_logprobs)
    assert "".join(response.logprobs.tokens) == response.text and response.logprobs.text_offset == [0, 1, 2, 3, 4, 5]


def test_completion_json_schema_is_followed(client):
    response = complete(client, max_tokens=200, extra_body={"response_format": in_schema(PERSON)}).choices[0]
    jsonschema.validate(json.loads(response.text), PERSON)


def test_responses_returns_text_and_usage(client):
    response = client.responses.create(model="caller", input="Say hello.", temperature=0, max_output_tokens=8)
    assert response.object == "response" and response.status == "incomplete" and response.output_text
    assert response.incomplete_details.reason == "max_output_tokens" and response.store is False
    assert response.usage.output_tokens == 8 and response.usage.total_tokens == response.usage.input_tokens + 8


def test_responses_text_equals_chat(client):
    said = [{"role": "system", "content": "Be brief."}, *HELLO]
    response = client.responses.create(
        model="caller", instructions="Be brief.", input="Say hello.", temperature=0, max_output_tokens=8
    )
    assert response.output_text == chat(client, messages=said).choices[0].message.content


def test_items_of_a_response(client):
    items = [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"city": "Bern"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "12 degrees"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "12."}]},
        {"role": "user", "content": "And tomorrow?"},
    ]
    assert client.responses.create(model="caller", input=items, max_output_tokens=4).usage.input_tokens > 60


def test_responses_tool_call_follows_schema(client):
    tool = {"type": "function", **WEATHER["function"]}
    response = client.responses.create(
        model="caller", input="Weather?", tools=[tool], temperature=0, max_output_tokens=200
    )
    calls = [item for item in response.output if item.type == "function_call"]
    assert response.status == "completed" and calls[0].name == "get_weather" and calls[0].call_id.startswith("call_")
    jsonschema.validate(json.loads(calls[0].arguments), WEATHER["function"]["parameters"])


def test_responses_json_schema_is_followed(client):
    format = {"type": "json_schema", "name": "person", "schema": PERSON, "strict": True}
    response = client.responses.create(model="caller", input="Who?", text={"format": format}, max_output_tokens=200)
    jsonschema.validate(json.loads(response.output_text), PERSON)


def test_events_of_a_response(client):
    asked: dict[str, Any] = {"model": "caller", "input": "Say hello.", "temperature": 0, "max_output_tokens": 8}
    events = list(client.responses.create(**asked, stream=True))
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"] and kinds[-1] == "response.incomplete"
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == (
        client.responses.create(**asked).output_text
    )
    for opened, closed in (("output_item.added", "output_item.done"), ("content_part.added", "content_part.done")):
        assert kinds.index(f"response.{opened}") < kinds.index(f"response.{closed}")


def test_events_of_a_response_that_calls(client):
    tool = {"type": "function", **WEATHER["function"]}
    asked: dict[str, Any] = {"model": "caller", "input": "?", "tools": [tool], "tool_choice": "required"}
    with client.responses.stream(**asked, temperature=0, max_output_tokens=200) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds and final.status == "completed"
    assert final.output[0].name == "get_weather"


def test_vectors(client):
    result = client.embeddings.create(model="bert", input=["dogs run", "cats sleep"])  # the client asks for base64
    assert [entry.index for entry in result.data] == [0, 1] and len(result.data[0].embedding) == 48
    assert result.usage.prompt_tokens == result.usage.total_tokens > 4
    alone = client.embeddings.create(model="bert", input="dogs run", encoding_format="float").data[0].embedding
    np.testing.assert_allclose(alone, result.data[0].embedding, atol=1e-5)


def test_vectors_in_base64(raw):
    response = raw.post("/v1/embeddings", json={"model": "bert", "input": "dogs", "encoding_format": "base64"}).json()
    assert np.frombuffer(base64.b64decode(response["data"][0]["embedding"]), "<f4").shape == (48,)


def test_embeddings_dimensions_of_the_model_are_accepted(client):
    assert len(client.embeddings.create(model="bert", input="dogs", dimensions=48).data[0].embedding) == 48


def test_ollama_embed_returns_unit_vectors_of_the_same_direction(raw, client):
    texts = ["dogs run", "cats sleep"]
    expected = np.array([entry.embedding for entry in client.embeddings.create(model="bert", input=texts).data])
    response = raw.post("/api/embed", json={"model": "bert:latest", "input": texts}).json()
    vectors = np.array(response["embeddings"])
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-5)
    assert response["prompt_eval_count"] > 4 and response["total_duration"] > 0 and response["model"] == "bert:latest"
    cut = np.array(raw.post("/api/embed", json={"model": "bert", "input": texts, "dimensions": 8}).json()["embeddings"])
    np.testing.assert_allclose(cut, vectors[:, :8] / np.linalg.norm(vectors[:, :8], axis=1, keepdims=True), atol=1e-5)
    old = raw.post("/api/embeddings", json={"model": "bert", "prompt": texts[0]}).json()["embedding"]
    np.testing.assert_allclose(old, expected[0], atol=1e-5)


def test_ollama_embed_cuts_a_long_text_unless_it_may_not(raw):
    body = {"model": "bert", "input": "dogs " * 2000}
    assert len(raw.post("/api/embed", json=body).json()["embeddings"][0]) == 48
    refused = raw.post("/api/embed", json=body | {"truncate": False})
    assert refused.status_code == 400 and isinstance(refused.json()["error"], str)
    assert raw.post("/api/embed", json={"model": "bert"}).json()["embeddings"] == []  # clients load a model in this way
    assert raw.post("/api/embed", json={"model": "bert", "input": ["a"] * 20_000}).status_code == 400


def test_ollama_show_describes_an_encoder(raw):
    response = raw.post("/api/show", json={"model": "bert"}).json()
    assert response["capabilities"] == ["embedding"] and response["model_info"]["webpte.embedding_length"] == 48
    assert [model["name"] for model in raw.get("/api/tags").json()["models"]] == ["caller", "bert"]


def test_models(client):
    result = client.models.list().data
    assert [model.id for model in result] == ["caller", "bert"] and all(model.object == "model" for model in result)
    assert client.models.retrieve("caller").context == CONTEXT


def test_tokenize_and_detokenize_round_trip(raw):
    text = "héllo 北 \n"
    response = raw.post("/tokenize", json={"model": "caller", "prompt": text}).json()
    assert response["count"] == len(response["tokens"]) and response["max_model_len"] == CONTEXT
    assert raw.post("/detokenize", json={"model": "caller", "tokens": response["tokens"]}).json() == {"prompt": text}


def test_tokens_of_a_chat(raw, client):
    response = raw.post("/tokenize", json={"model": "caller", "messages": HELLO, "tools": [WEATHER]}).json()
    assert response["count"] == chat(client, tools=[WEATHER], max_tokens=1).usage.prompt_tokens


def test_async_client_parallel_requests_complete(server, client):
    async def ask(connection, number):
        result = await connection.chat.completions.create(
            model="caller", messages=HELLO, max_tokens=12, temperature=1, seed=number, stream=True
        )
        return "".join([chunk.choices[0].delta.content or "" async for chunk in result])

    async def all_of_them():
        async with openai.AsyncOpenAI(base_url=server.api, api_key=KEYS["good"], max_retries=0) as connection:
            texts = await asyncio.gather(*(ask(connection, number) for number in range(6)))
            vectors = await connection.embeddings.create(model="bert", input="dogs")
            listed = [model.id async for model in connection.models.list()]
            response = await connection.responses.create(model="caller", input="hi", max_output_tokens=4)
            completion = await connection.completions.create(model="caller", prompt="hi", max_tokens=4)
            return texts, vectors, listed, response, completion

    texts, vectors, listed, response, completion = asyncio.run(all_of_them())
    alone = [chat(client, temperature=1, seed=number, max_tokens=12).choices[0].message.content for number in range(6)]
    assert texts == alone and len(vectors.data) == 1 and listed == ["caller", "bert"]
    assert response.output_text is not None and completion.choices[0].finish_reason == "length"
