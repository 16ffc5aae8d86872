"""Limits of a request: each is status 400 with the field, the limit and the number, and a row of docs/security.md."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import ValidationError

from tests.support.harness.stand_in import Asked, StandIn, StandInCompiler
from tests.support.harness.work import counted_calls
from tests.support.models.tokenizers import byte_level
from webpte.llm.settings import MAX_BIASED_TOKENS, MAX_STOP_CHARS, MAX_STOP_STRINGS
from webpte.serve import bodies
from webpte.serve.anthropic.requests import CountTokensRequest, MessagesRequest
from webpte.serve.application import app
from webpte.serve.bodies import MAX_FIELDS, RequestBody, parse_body
from webpte.serve.config import Config
from webpte.serve.errors import ApiError
from webpte.serve.messages import ModelInfo
from webpte.serve.ollama.requests import MAX_NAME_CHARS, OllamaChatRequest, OllamaEmbedRequest
from webpte.serve.openai.requests import (
    MAX_MESSAGES,
    MAX_MODALITIES,
    MAX_PARTS,
    MAX_TOKENS,
    MAX_TOOL_CALLS,
    MAX_TOOL_NAME_CHARS,
    MAX_TOP_LOGPROBS,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    EmbeddingsRequest,
    ResponsesRequest,
)
from webpte.serve.openai.tools import MAX_ARGUMENTS
from webpte.serve.rerank import RerankRequest, ScoreRequest

PAGE = (Path(__file__).parents[2] / "docs" / "security.md").read_text()
DEFAULT = Config()
MODEL = {"model": "stand-in"}
USER = {"role": "user", "content": "hi"}
CHAT, COMPLETE, RESPOND = "/v1/chat/completions", "/v1/completions", "/v1/responses"
MESSAGE = "/v1/messages"
CHATTING = {**MODEL, "messages": [USER]}
HERMES = {"shape": "object", "begin": "<tool_call>", "end": "</tool_call>"}


def tool(name: str = "f", **parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", **parameters}}}


def schema(size: int) -> dict[str, Any]:
    """Return a JSON schema of this many bytes."""
    empty = len('{"const": ""}')
    return {"const": "x" * (size - empty)}


def in_format(size: int) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "s", "schema": schema(size)}}


def properties(count: int) -> dict[str, Any]:
    return {"properties": {f"p{number}": {} for number in range(count)}}


class Limit(NamedTuple):
    """A limit, and a request that exceeds it."""

    row: str  # of the table, without the number
    limit: int
    unit: str  # and the option that sets it
    path: str
    body: dict[str, Any]
    param: str | None
    got: int
    status: int = 400


def at(field: str, limit: int, unit: str, path: str, body: dict[str, Any], param: str | None, **more: Any) -> Limit:
    return Limit(field, limit, unit, path, body, param, limit + 1, **more)


TOOLS_BYTES = '[{"name": "f", "description": "", "parameters": {"type": "object", "const": ""}}]'
LIMITS = [
    at("an object", MAX_FIELDS, "fields |", CHAT, {f"x{i}": 1 for i in range(MAX_FIELDS + 1)}, None),
    at("`messages`", MAX_MESSAGES, "entries |", CHAT, MODEL | {"messages": [USER] * (MAX_MESSAGES + 1)}, "messages"),
    at(
        "`input` of `/v1/responses`", MAX_MESSAGES, "entries |",
        RESPOND, MODEL | {"input": [USER] * (MAX_MESSAGES + 1)}, "input",
    ),
    at(
        "`content` of a message", MAX_PARTS, "parts |", CHAT,
        MODEL | {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * (MAX_PARTS + 1)}]},
        "messages[0].content",
    ),
    at(
        "`system` of `/v1/messages`", MAX_PARTS, "parts |", MESSAGE,
        CHATTING | {"max_tokens": 1, "system": [{"type": "text", "text": ""}] * (MAX_PARTS + 1)}, None,
    ),
    at(
        "`content` of a `tool_result`", MAX_PARTS, "parts |", MESSAGE,
        MODEL
        | {
            "max_tokens": 1,
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "1",
                            "content": [{"type": "text", "text": ""}] * (MAX_PARTS + 1),
                        }
                    ],
                }
            ],
        },
        None,
    ),
    at(
        "`tool_calls` of a message", MAX_TOOL_CALLS, "entries |", CHAT,
        MODEL
        | {
            "messages": [
                {
                    "role": "assistant",
                    "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}] * (MAX_TOOL_CALLS + 1),
                }
            ]
        },
        "messages[0].tool_calls",
    ),
    at(
        "`tools`", DEFAULT.max_tools, "entries | `max_tools`", CHAT,
        CHATTING | {"tools": [tool(f"f{number}") for number in range(DEFAULT.max_tools + 1)]}, "tools",
    ),
    at(
        "`tools`, as JSON", DEFAULT.max_schema_bytes, "bytes | `max_schema_bytes`", CHAT,
        CHATTING | {"tools": [tool(const="x" * (DEFAULT.max_schema_bytes + 1 - len(TOOLS_BYTES)))]}, "tools",
    ),
    at(
        "the name of a tool", MAX_TOOL_NAME_CHARS, "characters |", CHAT,
        CHATTING | {"tools": [tool("f" * (MAX_TOOL_NAME_CHARS + 1))]}, "tools[0].function.name",
    ),
    at(
        "`properties` of a tool's parameters", MAX_ARGUMENTS, "entries |", CHAT,
        CHATTING | {"tools": [tool(**properties(MAX_ARGUMENTS + 1))]}, "tools[0]",
    ),
    at(
        "a JSON schema (`response_format`, `text.format`, `format`)", DEFAULT.max_schema_bytes,
        "bytes | `max_schema_bytes`; status 422", CHAT,
        CHATTING | {"response_format": in_format(DEFAULT.max_schema_bytes + 1)},
        "response_format.json_schema.schema", status=422,
    ),
    at("`n`", DEFAULT.max_choices, "| `max_choices`", CHAT, CHATTING | {"n": DEFAULT.max_choices + 1}, "n"),
    Limit(
        "`n` × the number of prompts", DEFAULT.max_choices, "| `max_choices`", COMPLETE,
        MODEL | {"prompt": ["a"] * DEFAULT.max_choices, "n": 2}, "prompt", 2 * DEFAULT.max_choices,
    ),
    at(
        "tokens in `prompt` and `tokens`", MAX_TOKENS, "tokens |", "/detokenize",
        MODEL | {"tokens": [1] * (MAX_TOKENS + 1)}, "tokens",
    ),
    at(
        "`input` of `/v1/embeddings` and `/api/embed`", DEFAULT.max_inputs, "texts | `max_inputs`",
        "/v1/embeddings", {"model": "encoder", "input": ["a"] * (DEFAULT.max_inputs + 1)}, "input",
    ),
    at(
        "`documents` of `/v1/rerank`, texts of `/v1/score`", DEFAULT.max_inputs, "texts | `max_inputs`",
        "/v1/rerank", {"model": "ranker", "query": "a", "documents": ["a"] * (DEFAULT.max_inputs + 1)}, "documents",
    ),
    at(
        "`logit_bias`", MAX_BIASED_TOKENS, "entries |", CHAT,
        CHATTING | {"logit_bias": {str(token): 1 for token in range(MAX_BIASED_TOKENS + 1)}}, "logit_bias",
    ),
    at(
        "`stop`, `stop_sequences`", MAX_STOP_STRINGS, "strings |", CHAT,
        CHATTING | {"stop": ["x"] * (MAX_STOP_STRINGS + 1)}, "stop",
    ),
    at(
        "all strings of `stop` or `stop_sequences`", MAX_STOP_CHARS, "characters |", CHAT,
        CHATTING | {"stop": ["x" * (MAX_STOP_CHARS + 1)]}, "stop",
    ),
    at(
        "`top_logprobs`, and `logprobs` of `/v1/completions`", MAX_TOP_LOGPROBS, "|", CHAT,
        CHATTING | {"logprobs": True, "top_logprobs": MAX_TOP_LOGPROBS + 1}, "top_logprobs",
    ),
    at(
        "`max_tokens`, `max_completion_tokens`, `max_output_tokens`, `num_predict`", DEFAULT.max_output_tokens,
        "tokens | `max_output_tokens`", CHAT, CHATTING | {"max_tokens": DEFAULT.max_output_tokens + 1}, "max_tokens",
    ),
    at(
        "`modalities`", MAX_MODALITIES, "entries |", CHAT,
        CHATTING | {"modalities": ["text"] * (MAX_MODALITIES + 1)}, "modalities",
    ),
    at(
        "`model` of `/api/show` and `/api/pull`", MAX_NAME_CHARS, "characters |", "/api/pull",
        {"model": "x" * (MAX_NAME_CHARS + 1)}, None,
    ),
]  # fmt: skip


def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, body: Any, config: Config) -> Asked:
    monkeypatch.setattr("webpte.serve.served_models.SchemaCompiler", StandInCompiler)
    for name in ("TextTokenizer.load", "read_pairs"):
        monkeypatch.setattr(f"webpte.serve.served_models.{name}", lambda path: None)

    async def ask() -> Asked:
        backend = StandIn(tmp_path, byte_level(), tool_format=HERMES)
        backend.models["ranker"] = ModelInfo("ranker", "", "reranker", 16, 0, 1, 4, "f", 1)
        backend.models["encoder"] = ModelInfo("encoder", "", "encoder", 16, 0, 4, 4, "f", 1)
        application = app(backend, config)
        async with application.router.lifespan_context(application):
            return await Asked(application, path, body).answer()

    return asyncio.run(ask())


@pytest.mark.parametrize("limit", LIMITS, ids=[limit.row.replace("`", "") for limit in LIMITS])
def test_request_beyond_a_limit_is_refused_with_its_numbers(tmp_path, monkeypatch, limit):
    result = answer(tmp_path, monkeypatch, limit.path, limit.body, Config(max_body_bytes=8 << 20, strict=True))
    error = result.json["error"]
    if isinstance(error, str):  # of Ollama's API
        error = {"message": error}
    assert (result.status, error.get("param")) == (limit.status, limit.param), error
    assert str(limit.limit) in error["message"] and str(limit.got) in error["message"], error


def test_limits_of_the_page_equal_code():
    table = PAGE.partition("## Limits of a request")[2].partition("##")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| field")]
    body = f"| the body | {DEFAULT.max_body_bytes:,} bytes | `max_body_bytes`; status 413 |"
    expected = [f"| {limit.row} | {limit.limit:,} {limit.unit} |" for limit in LIMITS]
    assert rows == [body, *expected]


WRONG: list[tuple[type[RequestBody], dict[str, Any]]] = [
    (CompletionRequest, {"prompt": [1.5] * 20_000}),
    (CompletionRequest, {"prompt": [[]] * 20_000}),
    (CompletionRequest, {"prompt": [*([1] * 20_000), "a"]}),
    (ChatRequest, {"messages": [{}] * 20_000}),
    (ChatRequest, {"messages": [{"role": "user", "content": [1] * 20_000}]}),
    (ChatRequest, {"messages": [{"role": "assistant", "tool_calls": [1] * 20_000}]}),
    (ChatRequest, {"messages": [{**USER, **{f"x{number}": 1 for number in range(20_000)}}]}),
    (ChatRequest, {"messages": [USER], "tools": [1] * 20_000}),
    (ChatRequest, {"messages": [USER], "stop": [1] * 20_000}),
    (ChatRequest, {"messages": [USER], "modalities": [1] * 20_000}),
    (ChatRequest, {"messages": [USER], "logit_bias": {f"x{number}": "" for number in range(20_000)}}),
    (ResponsesRequest, {"input": [1] * 20_000}),
    (ResponsesRequest, {"input": [{"role": "user", "content": [1] * 20_000}]}),
    (ResponsesRequest, {"input": "a", "tools": [1] * 20_000}),
    (EmbeddingsRequest, {"input": [1] * 20_000}),
    (DetokenizeRequest, {"tokens": ["a"] * 20_000}),
    (MessagesRequest, {"max_tokens": 1, "messages": [1] * 20_000}),
    (MessagesRequest, {"max_tokens": 1, "messages": [{"role": "user", "content": [1] * 20_000}]}),
    (MessagesRequest, {"max_tokens": 1, "messages": [{"role": "assistant", "content": [1] * 20_000}]}),
    (MessagesRequest, {"max_tokens": 1, "messages": [USER], "stop_sequences": [1] * 20_000}),
    (CountTokensRequest, {"messages": [USER], "system": [1] * 20_000}),
    (CountTokensRequest, {"messages": [USER], "tools": [1] * 20_000}),
    (OllamaChatRequest, {"messages": [1] * 20_000}),
    (OllamaChatRequest, {"messages": [{"role": "assistant", "tool_calls": [1] * 20_000}]}),
    (OllamaChatRequest, {"messages": [{**USER, "images": [1] * 20_000}]}),
    (OllamaEmbedRequest, {"input": [1] * 20_000}),
    (RerankRequest, {"query": "a", "documents": [1] * 20_000}),
    (ScoreRequest, {"text_1": "a", "text_2": [1] * 20_000}),
]


@pytest.mark.parametrize(("declaration", "fields"), WRONG)
def test_list_with_20_000_invalid_entries_has_few_errors(monkeypatch, declaration, fields):
    """pydantic made an object for each: 16 s for a body of 1 MB, in which no other thread ran."""
    counts: list[int] = []
    original = bodies._invalid

    def counted(error: ValidationError, *rest: Any) -> ApiError:
        counts.append(error.error_count())
        return original(error, *rest)

    monkeypatch.setattr(bodies, "_invalid", counted)
    with pytest.raises(ApiError) as caught, counted_calls(20_000):
        parse_body(json.dumps(MODEL | fields).encode(), declaration)
    assert caught.value.status == 400 and sum(counts) <= 8


@pytest.mark.parametrize(
    "parameters", [{"properties": 5}, {"properties": [[1]]}, {"required": 5}, {"required": [[1]]}, {"type": "string"}]
)
def test_parameters_of_a_tool_that_are_no_schema_are_refused(tmp_path, monkeypatch, parameters):
    body = CHATTING | {"tools": [tool(**parameters)]}
    result = answer(tmp_path, monkeypatch, CHAT, body, Config())
    assert result.status == 400 and result.json["error"]["param"] == "tools[0]"
