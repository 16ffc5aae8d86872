"""Ollama's API over a backend without a worker: descriptions of models, and the form of every error under /api."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.support.harness.stand_in import Asked, StandIn
from tests.support.models.tokenizers import byte_level
from webpte.serve.application import app
from webpte.serve.config import Config
from webpte.serve.errors import QueueFull
from webpte.version import __version__

PROMPT = {"model": "stand-in", "prompt": "hi"}
HERMES = {"shape": "object", "begin": "<tool_call>", "end": "</tool_call>"}


def answer(tmp_path, path: str, body: Any, config: Config | None = None, fails: Any = None, **more: Any) -> Asked:
    """Return what the server answers to one request; `body` None is a GET."""

    async def whole() -> Asked:
        backend = StandIn(tmp_path, byte_level(), **more)
        backend.fails = fails
        application = app(backend, config)
        async with application.router.lifespan_context(application):
            return await Asked(application, path, body).answer()

    return asyncio.run(whole())


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api", None, 404),
        ("/api/unknown", None, 404),
        ("/api/unknown", {}, 404),
        ("/api/chat", None, 405),
        ("/api/chat", b"{", 400),
        ("/api/chat", {"model": 5}, 400),
        ("/api/chat", {"model": "stand-in", "messages": [{"role": "nobody"}]}, 400),
        ("/api/generate", PROMPT | {"options": {"temperature": -1}}, 400),
        ("/api/generate", PROMPT | {"model": "other"}, 404),
        ("/api/generate", PROMPT | {"prompt": "x" * 600}, 400),
        ("/api/generate", PROMPT | {"prompt": "x" * 2_000_000}, 413),
        ("/api/show", {}, 400),
        ("/api/show", {"model": "other"}, 404),
        ("/api/embed", {"model": "stand-in", "input": "a text"}, 400),
        ("/api/embed", {"model": "stand-in", "input": [1]}, 400),
        ("/api/embeddings", {"model": "stand-in", "prompt": "a text"}, 400),
        ("/api/pull", {"model": "llama3"}, 403),
        ("/api/pull", {}, 400),
        ("/api/push", {"model": "llama3"}, 403),
        ("/api/create", {"model": "llama3"}, 403),
        ("/api/copy", {"source": "stand-in", "destination": "copy"}, 403),
    ],
)
def test_error_of_ollamas_api_is_a_string_with_its_status(tmp_path, path, body, status):
    response = answer(tmp_path, path, body)
    assert response.status == status and set(response.json) == {"error"} and isinstance(response.json["error"], str)


@pytest.mark.parametrize(("error", "status"), [(QueueFull("64 wait already"), 429), (RuntimeError("a bug"), 500)])
def test_failure_of_the_backend_is_a_string_with_its_status(tmp_path, error, status):
    response = answer(tmp_path, "/api/generate", PROMPT, fails=error)
    assert response.status == status and isinstance(response.json["error"], str)


def test_missing_key_is_an_error_of_ollamas_api(tmp_path):
    response = answer(tmp_path, "/api/tags", None, Config(api_keys=("secret",)))
    assert response.status == 401 and isinstance(response.json["error"], str)
    openai = answer(tmp_path, "/v1/models", None, Config(api_keys=("secret",)))
    assert openai.json["error"]["code"] == "missing_api_key"  # OpenAI's form elsewhere


@pytest.mark.parametrize("body", [{"model": "stand-in"}, {"model": "stand-in:latest"}, {"name": "stand-in"}])
def test_show_describes_a_language_model(tmp_path, body):
    response = answer(tmp_path, "/api/show", body, tool_format=HERMES).json
    assert response["capabilities"] == ["completion", "tools"] and "m.content" in response["template"]
    architecture = response["model_info"]["general.architecture"]
    assert response["model_info"][f"{architecture}.context_length"] == 512
    assert response["details"]["format"] == "pte" and response["modified_at"] == "1970-01-01T00:00:01Z"


def test_lists_have_the_fields_of_ollama(tmp_path):
    (tag,) = answer(tmp_path, "/api/tags", None).json["models"]
    (running,) = answer(tmp_path, "/api/ps", None).json["models"]
    common = {"name", "model", "size", "digest", "details"}
    assert set(tag) == common | {"modified_at"}
    assert set(running) == common | {"size_vram", "expires_at", "context_length"} and running["context_length"] == 512
    assert answer(tmp_path, "/api/version", None).json == {"version": __version__}
