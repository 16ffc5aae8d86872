"""Ollama's API: answers, embeddings and descriptions of models. The server's models cannot be changed through it."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, cast

import numpy as np
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..llm.settings import LARGEST
from ..version import __version__
from .bodies import RequestBody, read_body
from .clients import run_in_thread
from .errors import ApiError
from .messages import ModelInfo
from .openai.generation import (
    ANY_OBJECT,
    Choice,
    Delta,
    FinishEvent,
    ParsedRequest,
    checked_params,
    constrain_response,
    output_tokens,
    respond,
    sampling_settings,
)
from .openai.models import embed_texts
from .openai.requests import MAX_MESSAGES, MAX_TOOL_CALLS, ChatTools, Inputs, StopStrings
from .openai.tools import ToolCallDelta, ToolConfig, tool_config
from .responses import JsonResponse, LineStream
from .service import Service

LATEST = ":latest"  # that clients append to a name
ARCHITECTURE = "webpte"  # the prefix of keys in `model_info`: a program does not name its architecture
NEVER = "9999-12-31T23:59:59Z"  # when a model is unloaded
# Paths of Ollama's API that change the models of a server.
CHANGES = (("pull", "POST"), ("push", "POST"), ("create", "POST"), ("copy", "POST"), ("delete", "DELETE"))


class OllamaOptions(RequestBody):
    """`options` of a request. What concerns the loading of a model is ignored: it is loaded already."""

    ignored = (
        "num_ctx",
        "num_batch",
        "num_gpu",
        "main_gpu",
        "num_thread",
        "num_keep",
        "use_mmap",
        "numa",
        "repeat_last_n",
    )
    temperature: float | None = Field(default=None, ge=0, le=100)
    top_k: int | None = Field(default=None, ge=-1, le=LARGEST)
    top_p: float | None = Field(default=None, ge=0, le=1)
    min_p: float | None = Field(default=None, ge=0, le=1)
    repetition_penalty: float | None = Field(default=None, ge=0.01, le=100, alias="repeat_penalty")
    presence_penalty: float | None = Field(default=None, ge=-100, le=100)
    frequency_penalty: float | None = Field(default=None, ge=-100, le=100)
    seed: int | None = Field(default=None, ge=-(2**63), le=2**64 - 1)
    num_predict: int | None = Field(default=None, ge=-2, le=LARGEST)  # below 0: no limit
    stop: StopStrings = Field(default_factory=list)


class OllamaRequest(RequestBody):
    """What chats and completions share."""

    ignored: ClassVar[tuple[str, ...]] = ("keep_alive", "think", "logprobs", "top_logprobs")
    model: str
    stream: bool = True
    format: Literal["", "json"] | dict[str, Any] = ""
    options: OllamaOptions = Field(default_factory=OllamaOptions)


NoImages = Annotated[list[str], Field(max_length=0)]


class OllamaFunctionCall(RequestBody):
    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class OllamaToolCall(RequestBody):
    function: OllamaFunctionCall


class OllamaMessage(RequestBody):
    ignored = ("thinking",)
    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    images: NoImages = Field(default_factory=list)
    tool_calls: Annotated[list[OllamaToolCall], Field(max_length=MAX_TOOL_CALLS, fail_fast=True)] = Field(
        default_factory=list
    )
    tool_name: str | None = None


class OllamaChatRequest(OllamaRequest):
    """`POST /api/chat`."""

    messages: Annotated[list[OllamaMessage], Field(max_length=MAX_MESSAGES, fail_fast=True)] = Field(
        default_factory=list
    )
    tools: ChatTools = Field(default_factory=list)
    tool_choice: None = None
    parallel_tool_calls: bool = True


class OllamaGenerateRequest(OllamaRequest):
    """`POST /api/generate`."""

    ignored = (*OllamaRequest.ignored, "context", "template")
    unsupported: ClassVar[dict[str, str]] = {"suffix": "the model continues texts and does not fill gaps"}
    prompt: str = ""
    system: str = ""
    raw: bool = False
    images: NoImages = Field(default_factory=list)


class OllamaEmbedRequest(RequestBody):
    """`POST /api/embed`. Without an input, the model is loaded."""

    ignored: ClassVar[tuple[str, ...]] = ("keep_alive", "options")
    model: str
    input: str | Inputs = ""
    truncate: bool = True
    dimensions: int | None = Field(default=None, ge=1, le=LARGEST)


class OllamaEmbeddingsRequest(RequestBody):
    """`POST /api/embeddings`, the older form for one text."""

    ignored: ClassVar[tuple[str, ...]] = ("keep_alive", "options")
    model: str
    prompt: str = ""


class OllamaShowRequest(RequestBody):
    """`POST /api/show`. Older clients send `name`."""

    ignored: ClassVar[tuple[str, ...]] = ("verbose", "system", "template", "options")
    model: str | None = None
    name: str | None = None


async def chat(request: Request) -> Response:
    """Handle `POST /api/chat`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaChatRequest)
    if not body.messages:  # clients load a model in this way
        return _loaded(service, body.model, "message")
    parsed = await run_in_thread(request, _parse_chat, body, service)
    return await respond(request, service, parsed, OllamaFormatter(body.model, "message"), LineStream)


async def generate(request: Request) -> Response:
    """Handle `POST /api/generate`."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaGenerateRequest)
    if not body.prompt:
        return _loaded(service, body.model, "response")
    parsed = await run_in_thread(request, _parse_generate, body, service)
    return await respond(request, service, parsed, OllamaFormatter(body.model, "response"), LineStream)


async def embed(request: Request) -> Response:
    """Handle `POST /api/embed`: vectors of length 1, cut to `dimensions`."""
    service: Service = request.app.state.service
    started = time.perf_counter_ns()
    body = await read_body(request, service.config, OllamaEmbedRequest)
    name = _model_name(service, body.model)
    texts = ([body.input] if body.input else []) if isinstance(body.input, str) else body.input
    vectors, count = await embed_texts(request, name, texts, truncate=body.truncate)
    vectors = _unit_vectors(vectors[:, : body.dimensions])
    return await run_in_thread(request, _embeddings, body.model, vectors, started, count)


async def embeddings(request: Request) -> Response:
    """Handle `POST /api/embeddings`: the vector of one text."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaEmbeddingsRequest)
    texts = [body.prompt] if body.prompt else []
    vectors, _ = await embed_texts(request, _model_name(service, body.model), texts, truncate=True)
    return JsonResponse({"embedding": vectors[0].tolist() if len(vectors) else []})


async def tags(request: Request) -> Response:
    """Handle `GET /api/tags`: list the models."""
    service: Service = request.app.state.service
    entries = [{**_entry(model), "modified_at": _timestamp(model.created)} for model in service.backend.models.values()]
    return JsonResponse({"models": entries})


async def running(request: Request) -> Response:
    """Handle `GET /api/ps`: list the models in memory, which are all."""
    service: Service = request.app.state.service
    entries = [
        {**entry, "size_vram": entry["size"], "expires_at": NEVER, "context_length": model.context}
        for model in service.backend.models.values()
        for entry in [_entry(model)]
    ]
    return JsonResponse({"models": entries})


async def show(request: Request) -> Response:
    """Handle `POST /api/show`: describe a model."""
    service: Service = request.app.state.service
    body = await read_body(request, service.config, OllamaShowRequest)
    name = body.model or body.name
    if name is None:
        raise ApiError(400, "model: required", param="model")
    model = service.model(_model_name(service, name))
    content = {
        "modelfile": "",
        "parameters": "",
        "template": "",
        "details": _entry(model)["details"],
        "model_info": {"general.architecture": ARCHITECTURE, f"{ARCHITECTURE}.context_length": model.context},
        "capabilities": ["embedding"],
        "modified_at": _timestamp(model.created),
    }
    if model.text is None:
        content["model_info"][f"{ARCHITECTURE}.embedding_length"] = model.dimensions
    else:
        tools = ["tools"] * (service.text_model(model.name).tool_format is not None)
        content |= {
            "parameters": "\n".join(f"{_option(name)} {value}" for name, value in model.text.sampling.items()),
            "template": model.text.template or "",
            "capabilities": ["completion", *tools],
        }
    return JsonResponse(content)


async def version(request: Request) -> Response:
    """Handle `GET /api/version`."""
    return JsonResponse({"version": __version__})


async def change_models(request: Request) -> Response:
    """Refuse to download, upload or remove a model: clients cannot choose what a server runs."""
    raise ApiError(
        403,
        f"{request.url.path}: this server does not download or change models. Name them when you start it: "
        "webpte serve MODEL",
        code="models_are_fixed",
    )


def _option(name: str) -> str:
    """Return Ollama's name of a sampling parameter."""
    field = OllamaOptions.model_fields.get(name)
    return field.alias or name if field is not None else name


def _entry(model: ModelInfo) -> dict[str, Any]:
    """Return the fields of a model that all lists have."""
    return {
        "name": model.name,
        "model": model.name,
        "size": os.path.getsize(model.path) if os.path.isfile(model.path) else 0,
        "digest": model.fingerprint,
        "details": {
            "parent_model": "",
            "format": "pte",
            "family": "",
            "families": [],
            "parameter_size": "",
            "quantization_level": "",
        },
    }


def _unit_vectors(vectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.where(lengths == 0, 1, lengths)


def _embeddings(model: str, vectors: np.ndarray[Any, Any], started: int, count: int) -> Response:
    duration = time.perf_counter_ns() - started
    durations = {"total_duration": duration, "load_duration": 0, "prompt_eval_count": count}
    return JsonResponse({"model": model, "embeddings": vectors.tolist(), **durations})


def _model_name(service: Service, name: str) -> str:
    """Return the name of a model; clients may append a tag."""
    return name.removesuffix(LATEST) if name not in service.backend.models else name


def _loaded(service: Service, model: str, field: str) -> Response:
    service.model(_model_name(service, model), "language")
    return JsonResponse(OllamaFormatter(model, field).end("load"))


def _parse_chat(body: OllamaChatRequest, service: Service) -> ParsedRequest:
    name = _model_name(service, body.model)
    text = service.text_model(name)
    settings = _settings(body, service)
    tools = tool_config(cast(Any, body), service.config) if body.tools else ToolConfig()
    calls = constrain_response(settings, tools, _schema(body), text)
    messages = [_template_message(message) for message in body.messages]
    tokens = text.prompt(text.tokenize_chat(messages, tools.for_template()))
    params = checked_params(service, text, settings)
    return ParsedRequest(name, [tokens], params, body.stream, include_usage=False, calls=calls)


def _template_message(message: OllamaMessage) -> dict[str, Any]:
    fields: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        fields["tool_calls"] = [{"type": "function", **call.model_dump()} for call in message.tool_calls]
    if message.tool_name is not None:
        fields["name"] = message.tool_name
    return fields


def _parse_generate(body: OllamaGenerateRequest, service: Service) -> ParsedRequest:
    name = _model_name(service, body.model)
    text = service.text_model(name)
    settings = _settings(body, service)
    if (schema := _schema(body)) is not None:
        settings["json_schema"] = schema
    if body.raw or text.template is None:
        tokens = text.prompt(text.tokenize_text(body.prompt, parse_special=body.raw))
    else:
        system = [{"role": "system", "content": body.system}] if body.system else []
        tokens = text.prompt(text.tokenize_chat([*system, {"role": "user", "content": body.prompt}], None))
    params = checked_params(service, text, settings)
    return ParsedRequest(name, [tokens], params, body.stream, include_usage=False)


def _settings(body: OllamaRequest, service: Service) -> dict[str, Any]:
    options = body.options
    limit = options.num_predict if options.num_predict is not None and options.num_predict > 0 else None
    return sampling_settings(options, options.seed) | {
        "max_new_tokens": output_tokens(service.config, num_predict=limit),
        "stop": options.stop,
    }


def _schema(body: OllamaRequest) -> dict[str, Any] | None:
    return dict(ANY_OBJECT) if body.format == "json" else body.format or None


class OllamaFormatter:
    """Writes lines and whole responses: the text is in `message` of a chat, else in `response`."""

    named_events = True

    def __init__(self, model: str, field: str) -> None:
        self._model = model
        self._field = field
        self._started = time.perf_counter_ns()
        self._first: int | None = None  # when the first delta arrived

    def whole(self, choices: Sequence[Choice], usage: dict[str, Any]) -> dict[str, Any]:
        (choice,) = choices
        assert choice.finish is not None
        return self.end(choice.finish.finish, choice.text, choice.tool_calls, choice.finish)

    def opening(self, count: int) -> Iterator[dict[str, Any]]:
        return iter(())

    def events(self, index: int, delta: Delta) -> Iterator[dict[str, Any]]:
        self._first = self._first or time.perf_counter_ns()
        if isinstance(delta, FinishEvent):
            yield self.end(delta.finish, finish=delta)
        elif isinstance(delta, ToolCallDelta):
            yield {**self._head(), **self._content("", [delta]), "done": False}
        elif delta.text:
            yield {**self._head(), **self._content(delta.text), "done": False}

    def closing(self, usage: dict[str, Any]) -> Iterator[dict[str, Any]]:
        return iter(())

    def end(
        self,
        reason: str,
        text: str = "",
        tool_calls: Sequence[ToolCallDelta] = (),
        finish: FinishEvent | None = None,
    ) -> dict[str, Any]:
        """Return the last object of a response. Durations are in nanoseconds."""
        now = time.perf_counter_ns()
        first = self._first or now
        done = {**self._head(), **self._content(text, tool_calls), "done": True}
        done |= {"done_reason": "stop" if reason == "tool_calls" else reason, "total_duration": now - self._started}
        if finish is not None:
            done |= {
                "load_duration": 0,
                "prompt_eval_count": finish.usage.prompt_tokens,
                "prompt_eval_duration": first - self._started,
                "eval_count": finish.usage.completion_tokens,
                "eval_duration": now - first,
            }
        return done

    def _head(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": _timestamp(time.time())}

    def _content(self, text: str, tool_calls: Sequence[ToolCallDelta] = ()) -> dict[str, Any]:
        if self._field == "response":
            return {"response": text}
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if tool_calls:
            message["tool_calls"] = [_tool_call(call) for call in tool_calls]
        return {"message": message}


def _tool_call(call: ToolCallDelta) -> dict[str, Any]:
    return {"function": {"name": call.name, "arguments": json.loads(call.arguments)}}


def _timestamp(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat().replace("+00:00", "Z")
