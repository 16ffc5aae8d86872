"""Ollama's API over a backend without a worker: descriptions of models, and the form of every error under /api."""

from __future__ import annotations

import asyncio
import datetime
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.support.harness.stand_in import Asked, StandIn
from tests.support.models.tokenizers import byte_level
from webpte.serve.application import app
from webpte.serve.backend import ModelStatus
from webpte.serve.config import Config
from webpte.serve.errors import ModelUnavailable, QueueFull
from webpte.serve.messages import ModelFile, ModelInfo
from webpte.serve.ollama.requests import OllamaGenerateRequest
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
    assert set(running) == common | {"size_vram", "expires_at", "context_length", "state"}
    assert (running["context_length"], running["state"]) == (512, "loaded")
    assert answer(tmp_path, "/api/version", None).json == {"version": __version__}


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (0, 0),
        (1.5, 1.5),
        (-1, -1),
        ("300", 300),
        ("5m", 300),
        ("1h30m", 5400),
        ("-1m", -60),
        ("500ms", 0.5),
    ],
)
def test_keep_alive_is_seconds_or_a_duration(value, seconds):
    assert OllamaGenerateRequest(model="m", keep_alive=value).keep_alive == seconds


@pytest.mark.parametrize("value", ["", "5 minutes", "-", "m", "1e400", [], True])
def test_keep_alive_that_is_no_duration_is_refused(tmp_path, value):
    response = answer(tmp_path, "/api/generate", PROMPT | {"keep_alive": value})
    assert response.status == 400 and "keep_alive" in response.json["error"]


class OneOfMany(StandIn):
    """Its model is one of several, and was never loaded."""

    holds: list[float | None]

    @property
    def statuses(self) -> dict[str, ModelStatus]:
        loaded = super().statuses["stand-in"]
        others = {
            "new": ModelStatus(ModelFile("new", "new.pte"), "language", "unloaded", None),
            "cut": ModelStatus(ModelFile("cut", "cut.pte"), "encoder", "failed", None, reason="format.truncated"),
            "next": ModelStatus(ModelFile("next", "next.pte"), "language", "loading", None),
        }
        return {"stand-in": replace(loaded, memory=1000, expires=60.0), **others}

    async def hold(self, name: str, keep_alive: float | None = None, *_: Any) -> ModelInfo:
        self.holds.append(keep_alive)
        if name == "cut":
            raise ModelUnavailable("model: cut cannot be loaded: format.truncated", 1.5)
        return self.models["stand-in"]

    def unload(self, name: str, client: str = "") -> bool:
        return name == "stand-in"


def of_many(tmp_path: Any, path: str, body: Any) -> tuple[Asked, list[float | None]]:
    async def whole() -> tuple[Asked, list[float | None]]:
        backend = OneOfMany(tmp_path, byte_level())
        backend.holds = []
        application = app(backend, None)
        async with application.router.lifespan_context(application):
            return await Asked(application, path, body).answer(), backend.holds

    return asyncio.run(whole())


def test_lists_state_which_models_are_loaded(tmp_path):
    entries = of_many(tmp_path, "/v1/models", None)[0].json["data"]
    assert {entry["id"]: entry["state"] for entry in entries} == {
        "stand-in": "loaded", "new": "unloaded", "cut": "failed", "next": "loading"
    }  # fmt: skip
    new = next(entry for entry in entries if entry["id"] == "new")
    assert set(new) == {"id", "object", "created", "owned_by", "kind", "state"}
    assert next(entry["reason"] for entry in entries if entry["id"] == "cut") == "format.truncated"
    running = of_many(tmp_path, "/api/ps", None)[0].json["models"]
    assert [(model["name"], model["state"], model["size_vram"]) for model in running] == [
        ("stand-in", "loaded", 1000), ("next", "loading", 0)
    ]  # fmt: skip
    expires = datetime.datetime.fromisoformat(running[0]["expires_at"]).timestamp()
    assert 0 < expires - time.time() <= 60
    assert [model["name"] for model in of_many(tmp_path, "/api/tags", None)[0].json["models"]] == [
        "stand-in", "new", "cut", "next"
    ]  # fmt: skip
    assert of_many(tmp_path, "/api/show", {"model": "new"})[0].json["capabilities"] == ["completion"]


@pytest.mark.parametrize(
    ("body", "reason", "held"),
    [({}, "load", [None]), ({"keep_alive": "5m"}, "load", [300.0]), ({"keep_alive": 0}, "unload", [])],
)
def test_request_without_a_prompt_loads_or_unloads(tmp_path, body, reason, held):
    for path in ("/api/generate", "/api/chat"):
        response, holds = of_many(tmp_path, path, {"model": "stand-in", **body})
        assert (response.json["done_reason"], holds) == (reason, held)


def test_model_that_cannot_be_loaded_gets_status_503_and_a_pause(tmp_path):
    response, _ = of_many(tmp_path, "/v1/embeddings", {"model": "cut", "input": "a"})
    assert (response.status, response.headers["retry-after"]) == (503, "2")
    assert response.json["error"]["code"] == "model_unavailable"
