"""Requests that name no model, messages of unknown roles, and the description of the API."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.harness.api_schemas import check_response
from tests.support.harness.stand_in import CHAT as TEMPLATE
from tests.support.harness.stand_in import Asked, StandIn
from tests.support.models.tokenizers import byte_level
from webpte import InputError
from webpte.llm.prompts import ROLES, render_chat
from webpte.serve.application import ROUTES, app
from webpte.serve.config import Config
from webpte.serve.messages import ModelInfo
from webpte.serve.openai.requests import ChatRequest
from webpte.serve.openapi import request_schemas, response_schemas
from webpte.serve.running import model_files

HERMES = {"shape": "object", "begin": "<tool_call>", "end": "</tool_call>"}
USER = {"role": "user", "content": "hi"}
CHAT = "/v1/chat/completions"
ENCODER = ModelInfo("encoder", "", "encoder", 16, 0, 4, 4, "f", 1)
GENERATING: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": [USER]}),
    ("/v1/completions", {"prompt": "hi"}),
    ("/v1/responses", {"input": "hi"}),
    ("/v1/messages", {"messages": [USER], "max_tokens": 8}),
    ("/api/chat", {"messages": [USER], "stream": False}),
    ("/api/generate", {"prompt": "hi", "stream": False}),
]


def answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: Any, models: dict[str, str], **config: Any
) -> Asked:
    """Ask a server with models of these kinds."""
    monkeypatch.setattr("webpte.serve.served_models.TextTokenizer.load", lambda path: None)

    async def ask() -> Asked:
        backend = StandIn(tmp_path, byte_level(), tool_format=HERMES)
        (language,) = backend.models.values()
        kinds = {"language": language, "encoder": ENCODER}
        backend.models = {name: replace(kinds[kind], name=name) for name, kind in models.items()}
        application = app(backend, Config(**config))
        async with application.router.lifespan_context(application):
            return await Asked(application, path, body).answer()

    return asyncio.run(ask())


@pytest.mark.parametrize(("path", "body"), GENERATING)
def test_request_without_a_model_uses_the_only_language_model(tmp_path, monkeypatch, path, body):
    response = answer(tmp_path, monkeypatch, path, body, {"writer": "language", "encoder": "encoder"})
    assert response.status == 200 and response.json["model"] == "writer"


@pytest.mark.parametrize(("path", "body"), GENERATING)
def test_request_without_a_model_names_the_candidates_if_there_are_two(tmp_path, monkeypatch, path, body):
    response = answer(tmp_path, monkeypatch, path, body, {"one": "language", "two": "language"})
    expected = "model: expected one of one, two, got none"
    error = response.json["error"]
    assert (response.status, error if path.startswith("/api") else error["message"]) == (400, expected)


@pytest.mark.parametrize(("path", "body"), GENERATING)
def test_model_name_chooses_an_adapter(tmp_path, path, body):
    async def ask() -> tuple[StandIn, list[Asked]]:
        backend = StandIn(tmp_path, byte_level())
        (model,) = backend.models.values()
        backend.models = {"writer": replace(model, name="writer", adapters=("poet", "clerk"))}
        async with (application := app(backend, Config())).router.lifespan_context(application):
            names = ("writer:clerk", "writer", "writer:judge")
            return backend, [await Asked(application, path, {**body, "model": name}).answer() for name in names]

    backend, (clerk, writer, unknown) = asyncio.run(ask())
    assert [stream.params.adapter for stream in backend.streams] == ["clerk", None]
    assert [answer.json["model"] for answer in (clerk, writer)] == ["writer:clerk", "writer"]
    assert unknown.status == 404 and "writer:poet, writer:clerk" in json.dumps(unknown.json)


def test_models_with_adapters_are_listed(tmp_path):
    async def ask() -> list[Any]:
        backend = StandIn(tmp_path, byte_level())
        (model,) = backend.models.values()
        backend.models = {"writer": replace(model, name="writer", adapters=("poet",))}
        async with (application := app(backend, Config())).router.lifespan_context(application):
            paths = ("/v1/models", "/v1/models/writer:poet", "/api/tags")
            return [(await Asked(application, path, None).answer()).json for path in paths]

    listed, poet, tags = asyncio.run(ask())
    assert [(each["id"], each.get("parent")) for each in listed["data"]] == [
        ("writer", None),
        ("writer:poet", "writer"),
    ]
    assert poet == listed["data"][1]
    assert [(each["name"], each["details"]["parent_model"]) for each in tags["models"]][1] == ("writer:poet", "writer")


def test_adapters_of_a_configuration_belong_to_models(tmp_path):
    program = tmp_path / "a.pte"
    program.touch()
    models = (f"one={program}", f"two={program}")
    files = model_files(models, ("two:poet=p", "one:poet=q", "two:clerk=r"))
    assert [{name: Path(folder).name for name, folder in file.adapters.items()} for file in files] == [
        {"poet": "q"},
        {"poet": "p", "clerk": "r"},
    ]
    assert [*model_files(models[:1], ("poet=p",))[0].adapters] == ["poet"]
    for wrong in ("poet=p", "three:poet=p", "one:=p", "one:poet", "one:a b=p"):
        with pytest.raises(InputError) as caught:
            model_files(models, (wrong,))
        assert caught.value.argument == "adapters"
    with pytest.raises(InputError, match="one:poet"):
        model_files((*models, f"one:poet={program}"), ("one:poet=p",))


def test_request_without_a_model_is_refused_if_none_is_of_the_kind(tmp_path, monkeypatch):
    response = answer(tmp_path, monkeypatch, CHAT, {"messages": [USER]}, {"encoder": "encoder"})
    assert response.status == 400
    expected = "model: this endpoint requires a language model; the server has an embedding model"
    assert response.json["error"]["message"] == expected
    response = answer(tmp_path, monkeypatch, "/v1/embeddings", {"input": "a"}, {"writer": "language"})
    expected = "model: this endpoint requires an embedding model; the server has a language model"
    assert response.json["error"]["message"] == expected


def test_embeddings_without_a_model_use_the_only_encoder(tmp_path, monkeypatch):
    body = {"input": "a", "dimensions": 3}  # the encoder has 4
    response = answer(tmp_path, monkeypatch, "/v1/embeddings", body, {"writer": "language", "small": "encoder"})
    assert response.json["error"]["message"] == "dimensions: expected 4, those of small, got 3"


def test_models_say_what_they_can_do(tmp_path, monkeypatch):
    models = {"writer": "language", "small": "encoder"}
    writer, small = answer(tmp_path, monkeypatch, "/v1/models", None, models).json["data"]
    assert (writer["context"], writer["images"], writer["tools"], writer["thinking"]) == (512, False, True, False)
    assert (small["kind"], small["context"], small["dimensions"]) == ("encoder", 16, 4) and "tools" not in small
    assert answer(tmp_path, monkeypatch, "/v1/models/writer", None, models).json == writer


def test_tokenize_without_a_model_uses_the_only_language_model(tmp_path, monkeypatch):
    models = {"writer": "language", "encoder": "encoder"}
    response = answer(tmp_path, monkeypatch, "/tokenize", {"prompt": "hi"}, models).json
    text = answer(tmp_path, monkeypatch, "/detokenize", {"tokens": response["tokens"]}, models).json
    assert text == {"prompt": "hi"}


@pytest.mark.parametrize("role", ["bob", "", 7, ["user"], "x" * 1000])
def test_unknown_role_gets_the_same_refusal_in_python_and_from_the_server(tmp_path, monkeypatch, role):
    messages = [USER, {"role": role, "content": "hi"}]
    with pytest.raises(InputError) as caught:
        render_chat(TEMPLATE, messages)
    assert caught.value.reason == "unknown_role" and len(str(caught.value)) < 200
    response = answer(tmp_path, monkeypatch, CHAT, {"messages": messages}, {"writer": "language"})
    error = response.json["error"]
    assert (response.status, error["param"], error["message"]) == (400, "messages[1].role", str(caught.value))


def test_request_roles_equal_template_roles():
    items = ChatRequest.model_json_schema()["properties"]["messages"]["items"]
    assert set(items["discriminator"]["mapping"]) == set(ROLES)


def test_openapi_describes_every_endpoint_and_its_body(tmp_path, monkeypatch):
    document = answer(tmp_path, monkeypatch, "/openapi.json", None, {"writer": "language"}).json
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == {(route.method, route.path.replace(":path", "")) for route in ROUTES}
    assert "security" not in document
    bodies: dict[str, dict[str, Any]] = {
        **dict(GENERATING),
        "/v1/embeddings": {"input": ["a"]},
        "/detokenize": {"tokens": [1]},
    }
    for path, body in bodies.items():
        reference = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        validator = jsonschema.Draft202012Validator({**reference, "components": document["components"]})
        validator.validate({**body, "unknown": 1})
        assert not validator.is_valid({**body, "model": 5})


def test_openapi_states_a_schema_for_every_response_and_event(tmp_path, monkeypatch):
    document = answer(tmp_path, monkeypatch, "/openapi.json", None, {"writer": "language"}).json
    streams = set()
    for path, methods in document["paths"].items():
        for operation in methods.values():
            for response in operation["responses"].values():
                for media, content in response["content"].items():
                    validator = jsonschema.Draft202012Validator(
                        {**content["schema"], "components": document["components"]}
                    )
                    assert not validator.is_valid({})
                    streams |= {(path, media)} - {(path, "application/json")}
    assert streams == {
        *((path, "text/event-stream") for path, _ in GENERATING if not path.startswith("/api")),
        *((f"/v1/audio/{task}", "text/event-stream") for task in ("transcriptions", "translations")),
        *((path, "application/x-ndjson") for path in ("/api/chat", "/api/generate", "/api/pull")),
    }


class Links(HTMLParser):
    """The anchors of a page, the links to them, and the text of its cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: set[str] = set()
        self.rows: list[list[str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.anchors |= {str(named["id"])} if "id" in named else set()
        self.links |= {str(named["href"])} if "href" in named else set()
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def test_page_of_the_api_has_every_endpoint_and_every_object(tmp_path, monkeypatch):
    response = answer(tmp_path, monkeypatch, "/docs", None, {"writer": "language"})
    assert response.headers["content-type"].startswith("text/html") and b"<script" not in response.body
    assert response.headers["content-security-policy"].startswith("default-src 'none'")
    page = Links(response.body.decode())
    assert page.links == {"openapi.json"} | {link for link in page.links if link[1:] in page.anchors}
    assert page.anchors == request_schemas(ROUTES).keys() | response_schemas(ROUTES).keys()
    described = {row[0] for row in page.rows}
    assert {f"{route.method} {route.path.replace(':path', '')}" for route in ROUTES} < described
    fields = [row for row in page.rows if row[0] == "temperature"]
    assert any("≥ 0" in row[1] and "≤ " in row[1] for row in fields)
    assert answer(tmp_path, monkeypatch, "/docs", None, {"writer": "language"}, api_keys=("k",)).status == 401


def test_schemas_of_requests_and_responses_have_different_names():
    assert not request_schemas(ROUTES).keys() & response_schemas(ROUTES).keys()


COMPLETION = {
    "id": "cmpl-1",
    "created": 1,
    "model": "writer",
    "object": "text_completion",
    "choices": [{"index": 0, "text": "a", "logprobs": None, "finish_reason": "stop"}],
    "usage": {
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "total_tokens": 2,
        "prompt_tokens_details": {"cached_tokens": 0},
    },
}


@pytest.mark.parametrize(
    ("change", "valid"),
    [({}, True), ({"extra": 1}, False), ({"usage": None}, False), ({"object": "chat.completion"}, False)],
)
def test_response_with_another_form_than_openapi_states_is_found(change, valid):
    text = json.dumps(COMPLETION | change)
    if valid:
        assert check_response("POST", "/v1/completions", 200, "application/json", text) == 1
    else:
        with pytest.raises(jsonschema.ValidationError):
            check_response("POST", "/v1/completions", 200, "application/json", text)


def test_openapi_names_the_keys_of_a_server_that_has_some(tmp_path, monkeypatch):
    response = answer(tmp_path, monkeypatch, "/openapi.json", None, {"writer": "language"}, api_keys=("k",))
    assert response.status == 401
